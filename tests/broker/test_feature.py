"""A broker is its core and a list of features: one class and one line add a request code, a beat, a file and a figure."""

import asyncio
from typing import Any

import msgspec
import pytest

from roquette.apps.features import broker_features
from roquette.broker.floor.config_files import Saver
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start, hooks
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.store.format.results import Arrival

GREET = 4_242
FILE = "greetings.json"


class Greetings(msgspec.Struct):
    """What the sample keeps."""

    greeted: int = 0


class GreetFeature(Feature):
    """The sample."""

    def __init__(self, core: BrokerCore) -> None:
        self._files = core.files
        self._file = Saver(core.files, FILE, lambda: Greetings(self.greeted))
        self.greeted = 0
        self.seen: list[str] = []

    def rows(self) -> list[Row]:
        return [row(GREET, self.greet, None, Lane.ADMIN, Promise.PROCESS)]

    def greet(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        self.greeted += 1
        self._file.mark()
        return Reply(b"", b"hello " + body)

    def beats(self) -> list[Beat]:
        return [Beat("greetings", 1.0, self._file.try_save)]

    def load(self, start: Start) -> None:
        kept = self._files.load(FILE, Greetings)
        self.greeted = 0 if kept is None else kept.greeted

    def arrived(self, arrivals: list[Arrival]) -> None:
        self.seen += [arrival.topic for arrival in arrivals]

    def forget_topic(self, topic: str) -> None:
        self.seen = [seen for seen in self.seen if seen != topic]

    def health(self) -> dict[str, str]:
        return {"greetings": str(self.greeted)}


def features(core: BrokerCore) -> list[Feature]:
    return [*broker_features(core), GreetFeature(core)]


def test_a_feature_is_one_class_and_one_line(run_broker: Any) -> None:
    async def first(case: Any) -> None:
        client = await case.client()
        assert (await client.call(GREET, {}, b"you")).body == b"hello you"
        table = msgspec.json.decode((await client.call(28, {})).body)["table"]
        assert table["greetings"] == "1"
        await client.call(310, case.send_ext(topic="T"), b"body")
        sample = case.broker.feature(GreetFeature)
        assert sample.seen == ["T"]
        await client.call(215, {"topic": "T"})
        assert sample.seen == []
        await asyncio.sleep(1.5)
        assert case.broker.core.files.load(FILE, Greetings) == Greetings(1)

    async def second(case: Any) -> None:
        assert case.broker.feature(GreetFeature).greeted == 1

    run_broker(first, features=features)
    run_broker(second, features=features)


def test_a_feature_that_a_broker_lacks_is_named(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        with pytest.raises(LookupError, match="the broker has no GreetFeature"):
            case.broker.feature(GreetFeature)
        reply = await (await case.client()).call(GREET, {})
        assert (reply.code, "4242" in reply.remark) == (3, True)  # REQUEST_CODE_NOT_SUPPORTED

    run_broker(scenario)


def test_hooks_of_a_turn_are_those_that_somebody_overrides() -> None:
    class Silent(Feature):
        pass

    class Loud(Feature):
        def arrived(self, arrivals: list[Arrival]) -> None:
            raise NotImplementedError

    loud = Loud()
    assert hooks([Silent(), loud], "arrived") == [loud.arrived]
    assert hooks([Silent(), loud], "turn_written") == []
