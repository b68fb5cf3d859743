"""Handlers that take several messages at once, in virtual time."""

import asyncio
from typing import Any

import pytest
from tests.client.test_push_consumer import committed, small, until

from roquette import StartFrom
from roquette.client.client import Client
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

QUEUE = MessageQueue("orders", "broker-a", 0)


class Calls:
    """A batch handler that keeps what each call got; `answers` are its first answers, exceptions are raised."""

    def __init__(self, *answers: object) -> None:
        self.got: list[list[bytes]] = []
        self.answers = list(answers)

    def __call__(self, messages: list[ReceivedMessage]) -> int | None:
        assert len({message.queue for message in messages}) == 1
        self.got.append([message.body for message in messages])
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    def bodies(self) -> list[bytes]:
        return [body for call in self.got for body in call]


async def ten_in_one_queue(cluster: SimCluster) -> Client:
    mq = await small(cluster, default_topic_queue_nums=1)
    await mq.send_batch("orders", [b"%d" % number for number in range(1, 10)])
    return mq


def test_a_call_gets_what_a_pull_brought_in_order_and_all_is_committed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await ten_in_one_queue(cluster)
        calls = Calls()
        await mq.subscribe(
            "orders", group="g", handler=calls, batch=4, start_from=StartFrom.FIRST, concurrency=1
        )
        await until(lambda: len(calls.bodies()) == 10)
        assert [len(call) for call in calls.got] == [4, 4, 2]
        assert calls.bodies() == [b"%d" % number for number in range(10)]
        await mq.close()
        other = await cluster.client("10.0.2.2")
        assert await committed(other, QUEUE) == 10

    simulate(scenario, seed=1)


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (3, [b"3"]),
        (0, [b"0", b"1", b"2", b"3"]),
        (False, [b"0", b"1", b"2", b"3"]),
        (-1, [b"0", b"1", b"2", b"3"]),
        (99, []),
        (True, []),
        (ValueError("no"), [b"0", b"1", b"2", b"3"]),
        ("three", [b"0", b"1", b"2", b"3"]),
    ],
)
def test_what_is_not_accepted_comes_again_and_nothing_else(
    answer: object, again: list[bytes]
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await ten_in_one_queue(cluster)
        calls = Calls(answer)
        await mq.subscribe(
            "orders", group="g", handler=calls, batch=4, start_from=StartFrom.FIRST, concurrency=1
        )
        await until(lambda: len(calls.bodies()) == 10 + len(again))
        await asyncio.sleep(120.0)
        assert sorted(calls.bodies()[10:]) == again
        await mq.close()

    simulate(scenario, seed=2)


@pytest.mark.parametrize("answer", [3, 0, ValueError("no")])
def test_orderly_calls_try_the_rest_again_before_what_follows(answer: object) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await ten_in_one_queue(cluster)
        calls = Calls(answer, answer)
        await mq.subscribe(
            "orders", group="g", handler=calls, batch=4, start_from=StartFrom.FIRST, orderly=True
        )
        done = answer if isinstance(answer, int) else 0
        await until(lambda: calls.bodies()[-1:] == [b"9"])
        first = calls.got[0]
        assert calls.got[1] == first[done:]
        accepted = first[:done] + (calls.got[1][:done] if done else [])
        for call in calls.got[2:]:
            accepted += call
        assert accepted == [b"%d" % number for number in range(10)]
        await mq.close()

    simulate(scenario, seed=3)


def test_orderly_messages_at_the_head_become_dead_letters_one_by_one() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await ten_in_one_queue(cluster)
        got: list[list[bytes]] = []

        def handle(messages: list[ReceivedMessage]) -> bool:
            got.append([message.body for message in messages])
            return messages[0].body not in (b"0", b"1")

        await mq.subscribe(
            "orders",
            group="g",
            handler=handle,
            batch=4,
            start_from=StartFrom.FIRST,
            orderly=True,
            max_reconsume_times=2,
        )
        await until(lambda: got[-1:] and got[-1][-1] == b"9")
        heads = [call[0] for call in got]
        assert heads.count(b"0") == heads.count(b"1") == 3  # the first time, and twice again
        assert await mq.max_offset((await mq.queues("%DLQ%g"))[0]) == 2
        await mq.close()

    simulate(scenario, seed=4)


def test_wrong_batches_are_refused() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for wrong in (0, -1, "four", 1.5):
            with pytest.raises(ConfigError, match="batch"):
                await mq.subscribe("orders", group="g", handler=Calls(), batch=wrong)  # type: ignore[arg-type]

    simulate(scenario, seed=5)


def test_a_call_takes_what_several_pulls_brought_up_to_its_batch() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, default_topic_queue_nums=1)
        await mq.send_batch("orders", [b"%d" % number for number in range(1, 301)])
        go_on, got = asyncio.Event(), list[int]()

        async def handler(messages: list[ReceivedMessage]) -> None:
            got.append(len(messages))
            if len(got) == 1:
                await go_on.wait()

        await mq.subscribe(
            "orders",
            group="g",
            handler=handler,
            batch=200,
            start_from=StartFrom.FIRST,
            concurrency=1,
        )
        await until(lambda: len(got) == 1)
        await asyncio.sleep(5)
        go_on.set()
        await until(lambda: sum(got) == 301)
        assert got[1] == 200

    simulate(scenario)


@pytest.mark.parametrize(
    "words",
    [
        {"orderly": True, "retry_levels": [3]},
        {"model": "broadcasting", "retry_levels": [3]},
        {"model": "broadcasting", "max_reconsume_times": 3},
    ],
)
def test_words_without_effect_are_refused(words: dict[str, Any]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        with pytest.raises(ConfigError, match="retr"):
            await mq.subscribe("orders", group="g", handler=lambda m: None, **words)

    simulate(scenario)
