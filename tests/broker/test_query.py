"""Queries by key (12): what is found, in pieces when many entries must be looked at."""

from typing import Any

import pytest

from roquette.base.javatypes import java_hash
from roquette.broker.operation import store_requests
from roquette.message.properties import encode_properties
from roquette.message.record import decode_record


def named(number: int, key: str) -> str:
    return encode_properties({"UNIQ_KEY": f"U{number}", "KEYS": key, "WAIT": "true"})


@pytest.mark.parametrize("entries", [3, 2_000])
def test_a_key_of_many_messages_is_found_in_pieces(
    run_broker: Any, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr(store_requests, "ENTRIES_A_TURN", entries)

    async def scenario(case: Any) -> None:
        client = await case.client()
        for number in range(40):
            await client.produce(i=named(number, "rare" if number == 0 else "often"))
        wanted = {"topic": "T", "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        often = await client.call(12, wanted | {"key": "often"})
        rare = await client.call(12, wanted | {"key": "rare"})
        never = await client.call(12, wanted | {"key": "never"})
        nothing = await client.call(12, wanted | {"key": "often", "maxNum": -1})

        assert (often.code, rare.code, never.code, nothing.code) == (0, 0, 22, 22)
        assert never.remark == "can not find message, maybe time range not correct"
        offsets, at = [], 0
        while at < len(often.body):
            record = decode_record(often.body, at, False)
            offsets.append(record.queue_offset)
            at += record.size
        assert offsets == [35, 36, 37, 38, 39], "the newest, in log order"
        assert decode_record(rare.body, 0, False).queue_offset == 0

    run_broker(scenario, store={"max_index_entries": 25})


def colliding_key(topic: str, wanted: str) -> str:
    """A key with which `topic` has the hash of `wanted`, "topic#key": the index knows hashes alone."""
    length, base = 7, 31
    start = java_hash(f"{topic}#") * base**length
    least = sum(33 * base**place for place in range(length))
    rest = (java_hash(wanted) - start - least) % (1 << 32)
    digits = [rest // base**place % base for place in range(length)][::-1]
    return "".join(chr(33 + digit) for digit in digits)


def test_a_key_with_the_hash_of_another_topics_finds_nothing_of_it(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce("theirs", i=named(1, "k"))
        key = colliding_key("ours", "theirs#k")
        assert java_hash(f"ours#{key}") == java_hash("theirs#k")
        times = {"maxNum": 5, "beginTimestamp": 0, "endTimestamp": 1 << 60}

        theirs = await client.call(12, times | {"topic": "theirs", "key": "k"})
        ours = await client.call(12, times | {"topic": "ours", "key": key})

        assert (theirs.code, ours.code) == (0, 22)

    run_broker(scenario)
