"""Offsets by request, and the table behind them."""

import pytest

from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.message.record import decode_records

GROUP = {"consumerGroup": "g", "topic": "T", "queueId": 0}
QUEUE = {"topic": "T", "queueId": 0}


def test_a_commit_is_found_again_and_a_smaller_one_replaces_it(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.tables.groups.find("g", 0)
        for offset in (5, 3):
            reply = await client.call(15, GROUP | {"commitOffset": offset})
            assert reply.code == 0
        reply = await client.call(14, GROUP)

        assert case.ext(reply) == {"offset": "3"}

    run_broker(scenario)


def test_a_group_that_never_committed_starts_at_0_while_0_is_fresh(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        fresh = await client.call(14, GROUP)
        strict = await client.call(14, GROUP | {"setZeroIfNotFound": "false"})
        empty = await client.call(14, GROUP | {"queueId": 3})

        assert case.ext(fresh) == {"offset": "0"}
        assert (strict.code, strict.remark) == (
            22,
            "Not found, do not set to zero, maybe this group boot first",
        )
        assert (empty.code, empty.remark) == (
            22,
            "Not found, maybe this group consumer boot first",
        )

    run_broker(scenario)


@pytest.mark.parametrize(
    "fields, code, text",
    [
        ({"consumerGroup": "nobody"}, 26, "Group nobody not exist!"),
        ({"topic": "X"}, 17, "Topic X not exist!"),
        ({"queueId": -1}, 29, "QueueId is -1"),
        ({"queueId": 70_000}, 29, "QueueId is 70000"),
    ],
)
def test_commits_that_are_refused(run_broker, fields, code, text):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.tables.groups.find("g", 0)
        reply = await client.call(15, GROUP | {"commitOffset": 1} | fields)

        assert reply.code == code
        assert text in reply.remark

    run_broker(scenario)


def test_ends_and_times_of_a_queue(run_broker):
    async def scenario(case):
        client = await case.client()
        for _ in range(3):
            await client.produce()
            case.loop.stall(1.0)
        times = [r.store_timestamp_ms for r in decode_records((await client.pull()).body)]
        highest = await client.call(30, QUEUE)
        lowest = await client.call(31, QUEUE)
        earliest = await client.call(32, QUEUE)
        middle = await client.call(29, QUEUE | {"timestamp": times[1]})
        before = await client.call(29, QUEUE | {"timestamp": times[1] + 1, "boundaryType": "upper"})
        late = await client.call(29, QUEUE | {"timestamp": times[2] + 1})
        nowhere = await client.call(30, {"topic": "X", "queueId": 0})

        assert case.ext(highest) == {"offset": "3"}
        assert case.ext(lowest) == {"offset": "0"}
        assert case.ext(earliest) == {"timestamp": str(times[0])}
        assert case.ext(middle) == {"offset": "1"}
        assert case.ext(before) == {"offset": "1"}
        assert case.ext(late) == {"offset": "3"}
        assert case.ext(nowhere) == {"offset": "0"}

    run_broker(scenario)


def test_offsets_survive_a_restart(run_broker, tmp_path):
    async def first(case):
        client = await case.client()
        await client.produce()
        case.broker.tables.groups.find("g", 0)
        await client.call(15, GROUP | {"commitOffset": 7})

    async def second(case):
        client = await case.client()
        assert case.ext(await client.call(14, GROUP)) == {"offset": "7"}

    run_broker(first)
    text = (tmp_path / "store/config/consumerOffset.json").read_text()
    run_broker(second)

    assert '"T@g":{' in text.replace(" ", "")


def test_the_table_forgets_groups_and_topics():
    table = OffsetTable(0)
    for group in ("g", "h"):
        for topic in ("T", "U"):
            table.commit(group, topic, 0, 1)
            table.commit_pull(group, topic, 0, 1)

    table.delete_group("g")
    table.delete_topic("U")

    assert table.query("h", "T", 0) == 1
    assert table.query("g", "T", 0) == table.query("h", "U", 0) == -1
    assert table.query_pull("h", "U", 0) == -1
    assert table.topics_of("h") == ["T"]
    assert table.groups_of("T") == ["h"]


def test_a_picture_of_the_table_stays_as_it_was_taken() -> None:
    table = OffsetTable(0)
    for topic in "TU":
        table.commit("g", topic, 0, 1)
    picture = table.to_wrapper()
    table.commit("g", "T", 0, 2)
    table.commit("g", "T", 1, 3)
    table.reset("g", "U", 0, 4, 0)
    table.clone("g", "h", "T", 0)
    table.commit("g", "V", 0, 5)
    assert picture.offset_table == {"T@g": {0: 1}, "U@g": {0: 1}}
    later = table.to_wrapper()
    table.commit("h", "T", 0, 9)
    table.delete_topic("U")
    assert later.offset_table == {
        "T@g": {0: 2, 1: 3}, "U@g": {0: 4}, "T@h": {0: 2, 1: 3}, "V@g": {0: 5},
    }  # fmt: skip
    assert table.query("h", "T", 0) == 9
    assert table.query("g", "T", 0) == 2
