"""`dlq` on a real broker: letters of real consumers' failures, causes, sending back once, also after a kill."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.places import Place
from tests.spark.sink.test_sink_jobs import read

from roquette import Client, Message
from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.properties import RECONSUME_TIME
from roquette_spark.pipelines.dlq import pipeline as dlq_send
from roquette_spark.pipelines.dlq.pipeline import PIPELINE, DlqOptions, plan
from roquette_spark.pipelines.kit.frame import Job, Progress, Result
from roquette_spark.values.options import SPARK_ID

pytestmark = pytest.mark.spark
GROUP = "billing"


def run(spark: Any, folder: Path, **given: Any) -> Result:
    job = Job(
        directory=str(folder),
        open_spark=lambda: spark,
        clock=SystemClock(),
        files=OsFiles(),
        progress=Progress(),
        stop=threading.Event(),
    )
    return PIPELINE.run(DlqOptions(**given), job)


def bury(place: Place, group: str, topic: str, numbers: range) -> None:
    """Messages as a broker puts them away for a group: sent to its retry topic once too often."""

    async def send() -> None:
        async with Client(place.address) as mq:
            for number in numbers:
                await mq._sender.send(  # the client's own words refuse a broker's properties
                    Message(
                        f"%RETRY%{group}",
                        b"body %d" % number,
                        tag="AB"[number % 2],
                        keys=(f"k{number}",),
                        properties={
                            "RETRY_TOPIC": topic,
                            "ORIGIN_MESSAGE_ID": f"ID{number}",
                            "error": f"ValueError: order {number} of 0x12345678ab\nat line 7"
                            if number % 3
                            else "timeout",
                            "version": "1.2",
                            RECONSUME_TIME: "17",
                        },
                    )
                )

    asyncio.run(send())
    place.settle(f"%DLQ%{group}", len(numbers))


def test_causes_are_put_together_and_chosen_letters_go_back_once(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    roquette.create("invoices", 2)
    bury(roquette, GROUP, "invoices", range(30))
    bury(roquette, "other", "invoices", range(100, 105))

    looked = run(spark, tmp_path, namesrv=roquette.address)
    assert looked.summary["topics"] == {"%DLQ%billing": 30, "%DLQ%other": 5}
    causes = [
        (each["messages"], each["group"], each["origin_topic"], each["error"], each["version"])
        for each in looked.summary["clusters"]
    ]
    assert causes[:2] == [
        (20, GROUP, "invoices", "ValueError: order # of #", "1.2"),
        (10, GROUP, "invoices", "timeout", "1.2"),
    ]
    assert read(spark, roquette, "invoices").count() == 0  # a look sends nothing

    given: dict[str, Any] = {
        "namesrv": roquette.address,
        "groups": (GROUP,),
        "where": "error = 'timeout' AND tags = 'A'",
        "send": True,
        "rate": 1000,
        "audit": str(tmp_path / "audit"),
    }
    sent = run(spark, tmp_path, **given)
    again = run(spark, tmp_path, **given)

    assert (sent.summary["sent"]["sent"], sent.summary["sent"]["settled"]) == (5, 0)
    assert (again.summary["sent"]["sent"], again.summary["sent"]["settled"]) == (0, 5)
    rows = read(spark, roquette, "invoices").collect()
    assert sorted(row.key for row in rows) == ["k0", "k12", "k18", "k24", "k6"]
    for row in rows:
        assert row.body == b"body " + row.key[1:].encode()
        assert row.properties["version"] == "1.2"
        assert row.properties[SPARK_ID].startswith("dlq:%DLQ%billing/")
        assert row.tags == "A"


class Killed(BaseException):
    """As if the process had ended here."""


@contextlib.contextmanager
def killed_after(monkeypatch: pytest.MonkeyPatch, sent: str) -> Iterator[None]:
    """Kill the run inside when it has sent the letters for which `sent`, an expression of Spark, is true."""
    real = dlq_send._send

    def some_then_killed(letters: Any, namesrv: str, rate: int) -> None:
        real(letters.where(sent), namesrv, rate)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(dlq_send, "_send", some_then_killed)
        with pytest.raises(Killed):
            yield


def test_a_run_killed_after_sending_is_found_out_and_nothing_goes_twice(
    spark: Any, roquette: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roquette.create("parcels", 16)  # most queues are given nothing
    bury(roquette, "shipping", "parcels", range(6))
    given: dict[str, Any] = {
        "namesrv": roquette.address,
        "groups": ("shipping",),
        "send": True,
        "rate": 1000,
        "audit": str(tmp_path / "audit"),
    }

    with killed_after(monkeypatch, "key < 'k3'"):
        run(spark, tmp_path, **given)

    after = run(spark, tmp_path, **given).summary["sent"]
    last = run(spark, tmp_path, **given).summary["sent"]

    assert (after["found"], after["sent"], after["settled"]) == (3, 3, 0)
    assert (last["found"], last["sent"], last["settled"]) == (0, 0, 6)
    keys = [row.key for row in read(spark, roquette, "parcels").collect()]
    assert sorted(keys) == [f"k{n}" for n in range(6)]
    states = spark.read.parquet(str(tmp_path / "audit")).groupBy("state").count().collect()
    assert {row.state: row["count"] for row in states} == {"planned": 9, "sent": 3, "found": 3}


def test_another_target_gets_no_letter_that_a_killed_run_has_sent(
    spark: Any, roquette: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roquette.create("first-home", 2)
    roquette.create("second-home", 2)
    bury(roquette, "movers", "first-home", range(6))
    given: dict[str, Any] = {
        "namesrv": roquette.address,
        "groups": ("movers",),
        "send": True,
        "rate": 1000,
        "audit": str(tmp_path / "audit"),
    }

    with killed_after(monkeypatch, "key < 'k4'"):
        run(spark, tmp_path, **given)

    after = run(spark, tmp_path, to_topic="second-home", **given).summary["sent"]
    back = run(spark, tmp_path, **given).summary["sent"]

    assert (after["found"], after["sent"], after["settled"]) == (4, 2, 0)
    assert (back["found"], back["sent"], back["settled"]) == (0, 0, 6)
    homes = {
        topic: sorted(row.key for row in read(spark, roquette, topic).collect())
        for topic in ("first-home", "second-home")
    }
    assert homes == {"first-home": ["k0", "k1", "k2", "k3"], "second-home": ["k4", "k5"]}


def test_a_limit_and_another_topic(spark: Any, roquette: Place, tmp_path: Path) -> None:
    roquette.create("second-look", 1)
    bury(roquette, "returns", "gone-topic", range(4))
    given: dict[str, Any] = {
        "namesrv": roquette.address,
        "groups": ("returns",),
        "send": True,
        "rate": 1000,
        "audit": str(tmp_path / "audit"),
    }
    with pytest.raises(ConfigError, match="topic gone-topic does not exist"):
        run(spark, tmp_path, **given)

    first = run(spark, tmp_path, to_topic="second-look", limit=3, **given).summary["sent"]
    second = run(spark, tmp_path, to_topic="second-look", limit=3, **given).summary["sent"]

    assert (first["sent"], second["sent"], second["settled"]) == (3, 1, 3)
    assert read(spark, roquette, "second-look").count() == 4


def test_a_plan_asks_and_sends_nothing(roquette: Place) -> None:
    bury(roquette, "planned", "invoices", range(3))

    found = plan(DlqOptions(namesrv=roquette.address, groups=("planned",), send=True, audit="a"))

    assert found.reads == ["%DLQ%planned: 3 messages"]
    assert "at most 100 a second" in found.writes[0]
    with pytest.raises(Exception, match="group nobody has no dead letters"):
        plan(DlqOptions(namesrv=roquette.address, groups=("nobody",)))
