"""Pop, ack, redelivery, as frames, in virtual time."""

import asyncio
import base64

import pytest
from tests.broker.pop_frames import ack, body, pop, pop_ext, popped

from roquette.base.bounds import Bound
from roquette.base.files import OsFiles
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.operation.consume_stats import StatsFeature
from roquette.broker.pop.feature import PopFeature
from roquette.message.record import decode_records
from roquette.store.cut import cut_log
from roquette.store.format.config import FlushDiskType
from roquette.store.upkeep.retention import DiskUsage
from roquette.wire.bodies import BrokerStatsData
from roquette.wire.json_body import decode_body

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def send(client, count, topic="T", **more):
    for n in range(count):
        await client.produce(topic, body=b"m%d" % n, **more)


def bodies(messages):
    return [message.body for message in messages]


def test_a_pop_hands_out_messages_once(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        reply = await client.call(200050, pop_ext(case.clock.now_ms()))
        again = await client.call(200050, pop_ext(case.clock.now_ms()))

        ext = case.ext(reply)
        assert (reply.code, reply.remark) == (0, "FOUND")
        assert bodies(popped(reply)) == [b"m0", b"m1", b"m2"]
        assert ext["startOffsetInfo"] == "0 0 0"
        assert ext["msgOffsetInfo"] == "0 0 0,1,2"
        assert (ext["invisibleTime"], ext["restNum"], ext["reviveQid"]) == ("10000", "0", "0")
        assert "orderCountInfo" not in ext
        assert (again.code, again.remark) == (210, "NO_MESSAGE_IN_QUEUE")

    run_broker(scenario)


def test_what_is_acknowledged_does_not_come_again_and_what_is_not_does(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        first = await pop(case, client)
        for message in (first[0], first[2]):
            assert (await ack(client, message)).code == 0
        await asyncio.sleep(11.9)
        early = await pop(case, client)
        await asyncio.sleep(0.5)
        again = await pop(case, client)

        assert early == []
        assert bodies(again) == [b"m1"]
        assert again[0].topic == "T"
        assert again[0].reconsume_times == 1
        assert again[0].receipt.split(" ")[4] == "1"
        assert again[0].named["1ST_POP_TIME"] == first[0].receipt.split(" ")[1]
        assert again[0].named["UNIQ_KEY"] == first[1].named["UNIQ_KEY"]
        await ack(client, again[0])
        await asyncio.sleep(30)
        assert await pop(case, client) == []
        assert case.broker.feature(PopFeature).pop.reviver.in_flight() == []

    run_broker(scenario)


def test_a_retried_message_comes_again_and_again(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        for times in range(4):
            (message,) = await pop(case, client)
            assert message.reconsume_times == times
            await asyncio.sleep(13)

    run_broker(scenario)


def test_the_second_form_of_retry_topics(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        await pop(case, client)
        await asyncio.sleep(13)
        found = []
        for _ in range(20):  # an older form's topic is asked every other time
            found += await pop(case, client)

        assert sorted(bodies(found)) == [b"m0", b"m1"]
        assert {message.receipt.split(" ")[4] for message in found} == {"2"}
        assert case.broker.tables.topics.find("%RETRY%g+T") is not None

    run_broker(scenario, broker={"enable_retry_topic_v2": True})


def test_a_retry_keeps_its_real_topic_on_request(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        await pop(case, client)
        await asyncio.sleep(13)
        reply = await client.call(200050, pop_ext(case.clock.now_ms()))

        assert [r.topic for r in decode_records(reply.body, True)] == ["%RETRY%g_T"]
        assert case.ext(reply)["startOffsetInfo"] == "1 0 0"

    run_broker(scenario, broker={"pop_response_return_actual_retry_topic": True})


def test_check_points_survive_a_clean_restart_and_a_lost_offset_file(run_broker, tmp_path):
    async def before(case):
        client = await case.client()
        await send(client, 3)
        await pop(case, client, maxMsgNums=1)
        (second,) = await pop(case, client, maxMsgNums=1)
        await ack(client, second)

    async def after(case):
        client = await case.client()
        assert bodies(await pop(case, client)) == [b"m2"]
        await asyncio.sleep(13)
        assert sorted(bodies(await pop(case, client))) == [b"m0", b"m2"]

    run_broker(before)
    run_broker(after)


def test_nothing_is_handed_out_early_after_a_crash(run_broker, tmp_path):
    """The offsets on the disk are older than the last pops; the revive log knows better."""
    config = tmp_path / "store" / "config" / "consumerOffset.json"
    kept = []

    async def before(case):
        client = await case.client()
        await send(client, 6)
        await pop(case, client, maxMsgNums=2)
        await asyncio.sleep(6)
        kept.append(config.read_bytes())
        await pop(case, client, maxMsgNums=3, invisibleTime=60_000)

    async def after(case):
        client = await case.client()
        assert case.broker.tables.offsets.query("g", "T", 0) == 5
        assert bodies(await pop(case, client)) == [b"m5"]

    run_broker(before)
    assert b'"T@g"' in kept[0] and b"0:2" in kept[0]
    config.write_bytes(kept[0])
    run_broker(after)


def test_the_invisible_time_can_be_changed(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        first, second = await pop(case, client)
        reply = await client.call(200053, first.ack_ext(invisibleTime=30_000))
        ext = case.ext(reply)
        shorter = await client.call(200053, second.ack_ext(invisibleTime=1_000))
        await asyncio.sleep(3.5)
        assert bodies(await pop(case, client)) == [b"m1"]
        await asyncio.sleep(20)
        assert bodies(await pop(case, client)) == [b"m1"]  # not acknowledged either
        await asyncio.sleep(9)
        assert bodies(await pop(case, client)) == [b"m0"]

        assert (reply.code, shorter.code) == (0, 0)
        assert ext["invisibleTime"] == "30000"
        assert ext["reviveQid"] == first.receipt.split(" ")[3]
        assert int(ext["popTime"]) > int(first.receipt.split(" ")[1])

    run_broker(scenario)


def test_a_changed_receipt_acknowledges(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        message = (await pop(case, client))[1]
        ext = case.ext(await client.call(200053, message.ack_ext(invisibleTime=5_000)))
        renewed = f"1 {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 broker-a 0 1"
        await ack(client, message, extraInfo=renewed)
        await asyncio.sleep(15)

        assert bodies(await pop(case, client)) == [b"m0", b"m2"]

    run_broker(scenario)


def test_a_suspended_message_counts_no_try(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        (message,) = await pop(case, client)
        await client.call(200053, message.ack_ext(invisibleTime=1_000, suspend="true"))
        await asyncio.sleep(4)
        (again,) = await pop(case, client)

        assert again.reconsume_times == 0

    run_broker(scenario)


def test_batch_ack(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 10)
        messages = await pop(case, client)
        parts = messages[0].receipt.split(" ")
        bits = sum(1 << n for n in (0, 1, 9))
        entry = {
            "c": "g", "t": "T", "r": "0", "so": int(parts[0]), "q": 0, "rq": int(parts[3]),
            "pt": int(parts[1]), "it": int(parts[2]),
            "b": base64.b64encode(bits.to_bytes(2, "little")).decode(),
        }  # fmt: skip
        reply = await client.call(200151, {}, body({"brokerName": "broker-a", "acks": [entry]}))
        nothing = await client.call(200151, {}, body({"brokerName": "broker-a", "acks": []}))
        await asyncio.sleep(13)

        assert (reply.code, nothing.code) == (0, 208)
        assert bodies(await pop(case, client)) == [b"m%d" % n for n in range(2, 9)]

    run_broker(scenario)


def test_queues_share_a_pop(run_broker):
    async def scenario(case):
        client = await case.client()
        for queue_id in range(4):
            for n in range(3):
                await client.produce(body=b"%d-%d" % (queue_id, n), e=queue_id)
        first = await client.call(200050, pop_ext(case.clock.now_ms(), maxMsgNums=10))
        second = await pop(case, client, maxMsgNums=10)

        messages = popped(first)
        assert len(messages) == 10
        assert case.ext(first)["restNum"] == "2"
        assert len(case.ext(first)["startOffsetInfo"].split(";")) == 4
        assert len({m.body for m in messages} | set(bodies(second))) == 12
        for message in messages:
            assert (await ack(client, message)).code == 0
        await asyncio.sleep(13)
        assert sorted(bodies(await pop(case, client))) == sorted(bodies(second))

    run_broker(scenario)


def test_tags_filter_and_what_is_passed_over_is_not_looked_at_again(run_broker):
    async def scenario(case):
        client = await case.client()
        for n in range(5):
            tag = "A" if n % 2 else "B"
            await client.produce(body=b"m%d" % n, properties={"TAGS": tag, "UNIQ_KEY": f"u{n}"})
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), exp="A || C"))
        nothing = await client.call(
            200050, pop_ext(case.clock.now_ms(), exp="X", consumerGroup="g2")
        )

        assert bodies(popped(reply)) == [b"m1", b"m3"]
        assert case.ext(reply)["msgOffsetInfo"] == "0 0 1,3"
        assert case.ext(reply)["startOffsetInfo"] == "0 0 0"
        assert nothing.code == 210
        assert case.broker.tables.offsets.query("g2", "T", 0) == 5
        await ack(client, popped(reply)[1])
        await asyncio.sleep(13)
        assert bodies(await pop(case, client, exp="A || C")) == [b"m1"]

    run_broker(scenario)


def test_selectors_filter(run_broker):
    async def scenario(case):
        client = await case.client()
        for n in range(6):
            await client.produce(body=b"m%d" % n, properties={"n": str(n), "UNIQ_KEY": f"u{n}"})
        sql = {"exp": "n > 2 AND n <> 4", "expType": "SQL92"}
        messages = await pop(case, client, **sql)
        started = case.loop.time()
        waiting = asyncio.ensure_future(
            client.call(200050, pop_ext(case.clock.now_ms(), pollTime=15_000, **sql))
        )
        await asyncio.sleep(0.1)
        sender = await case.client()
        await sender.produce(body=b"no", properties={"n": "1", "UNIQ_KEY": "v"})
        await sender.produce(body=b"yes", properties={"n": "7", "UNIQ_KEY": "w"})

        assert bodies(messages) == [b"m3", b"m5"]
        assert bodies(popped(await waiting)) == [b"yes"]
        assert case.loop.time() - started < 1

    run_broker(scenario)


def test_selectors_are_asked_beside_the_loop_for_cold_records(run_broker):
    async def scenario(case):
        client = await case.client()
        for n in range(6):
            await client.produce(body=b"m%d" % n, properties={"n": str(n), "UNIQ_KEY": f"u{n}"})
        sql = {"exp": "n > 2", "expType": "SQL92"}
        found = await pop(case, client, **sql)

        assert bodies(found) == [b"m3", b"m4", b"m5"]
        assert case.broker.feature(PopFeature).pop.locked == set()

    run_broker(scenario, store={"memory_ratio": 0})


def test_notifications_know_filters(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(properties={"TAGS": "A", "UNIQ_KEY": "u"})

        async def ask(expression):
            ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0,
                   "bornTime": 0, "expType": "TAG", "exp": expression}  # fmt: skip
            return case.ext(await client.call(200054, ext))["hasMsg"]

        assert [await ask(e) for e in ("A", "B", "*")] == ["true", "false", "true"]

    run_broker(scenario)


@pytest.mark.parametrize("mode, expected", [(0, [b"m0", b"m1", b"m2"]), (1, [b"m2"])])
def test_where_a_new_group_begins(run_broker, mode, expected):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)

        assert bodies(await pop(case, client, initMode=mode)) == expected

    run_broker(scenario, broker={"init_pop_offset_by_check_msg_in_mem": False})


def test_cold_records_are_read_beside_the_loop(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 12)
        one, two = await asyncio.gather(pop(case, client), pop(case, await case.client()))

        assert sorted(bodies(one) + bodies(two), key=lambda b: int(b[1:])) == [
            b"m%d" % n for n in range(len(one) + len(two))
        ]
        assert case.broker.feature(PopFeature).pop.locked == set()
        for message in one + two:
            await ack(client, message)
        rest = await pop(case, client)
        assert len(one) + len(two) + len(rest) == 12

    run_broker(scenario, store={"memory_ratio": 0})


def test_under_sync_flush_pops_and_acks_wait_for_the_disk(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        messages = await pop(case, client)
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset
        for message in messages:
            assert (await ack(client, message)).code == 0
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset
        waiting = asyncio.ensure_future(
            client.call(200050, pop_ext(case.clock.now_ms(), pollTime=5_000))
        )
        await asyncio.sleep(0.1)
        other = await case.client()
        await other.produce(body=b"late")
        assert bodies(popped(await waiting)) == [b"late"]

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_more_check_points_than_memory_holds_wait_in_the_log(run_broker):
    """Two of each revive queue fit; acknowledgements behind them are found all the same."""

    async def scenario(case):
        client = await case.client()
        await send(client, 60)
        lost = set()
        for number in range(60):
            (message,) = await pop(case, client, maxMsgNums=1)
            if number % 3:
                await ack(client, message)
            else:
                lost.add(message.body)
        await asyncio.sleep(1)
        assert len(case.broker.feature(PopFeature).pop.reviver.in_flight()) <= 16
        assert lost == {b"m%d" % n for n in range(0, 60, 3)}
        await asyncio.sleep(13)
        assert set(bodies(await pop(case, client, invisibleTime=100_000))) == lost

    run_broker(scenario, broker={"pop_ck_max_buffer_size": 16})


def test_progress_follows_the_revive_log(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 16)
        for _ in range(16):
            (message,) = await pop(case, client, maxMsgNums=1)
            await ack(client, message)
        await asyncio.sleep(1)
        topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
        progress = [
            case.broker.tables.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", topic, q) for q in range(8)
        ]
        ends = [case.broker.store.max_offset(topic, q) for q in range(8)]

        assert ends == [4] * 8
        assert progress == [3] * 8

    run_broker(scenario)


def test_a_full_disk_hands_out_nothing_and_forgets_nothing(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        (kept,) = await pop(case, client, maxMsgNums=1)
        case.broker.store.check_disk(DiskUsage(1_000, 1))
        full = await client.call(200050, pop_ext(case.clock.now_ms()))
        refused = await ack(client, kept)
        await asyncio.sleep(13)
        case.broker.store.check_disk(DiskUsage(1_000, 900))
        await asyncio.sleep(11)

        assert (full.code, refused.code) == (210, 14)
        assert sorted(bodies(await pop(case, client))) == [b"m0", b"m1"]

    run_broker(scenario)


def test_a_reset_is_honoured_by_the_next_pop(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        await pop(case, client, invisibleTime=60_000)
        case.broker.tables.offsets.reset("g", "T", 0, 1, case.clock.now_ms())

        assert bodies(await pop(case, client, invisibleTime=60_000)) == [b"m1", b"m2"]
        assert await pop(case, client) == []

    run_broker(scenario)


def revive_and_forget(run_broker, tmp_path):
    """A message is revived by a broker whose progress on the disk is older than that."""
    config = tmp_path / "store" / "config" / "consumerOffset.json"
    kept = []

    async def before(case):
        client = await case.client()
        await send(client, 1)
        await pop(case, client)
        await asyncio.sleep(6)
        kept.append(config.read_bytes())
        await asyncio.sleep(7)

    run_broker(before)
    config.write_bytes(kept[0])


def test_a_revived_message_is_revived_once_across_a_crash(run_broker, tmp_path):
    """What follows the copies in the log says that the revival was made."""
    revive_and_forget(run_broker, tmp_path)

    async def after(case):
        await asyncio.sleep(15)  # its time counts from this start again
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 1

    run_broker(after)


def test_a_new_master_revives_nothing_again_that_is_not_confirmed_yet(run_broker, tmp_path):
    """Seed 11753 of the group: the master before had revived it, and one of the set had not that part of the log yet."""
    revive_and_forget(run_broker, tmp_path)

    async def after(case):
        store = case.broker.store
        ((copy, _, _),) = store.queue_units("%RETRY%g_T", 0, 0, 1)
        store.set_confirmed(copy)
        await asyncio.sleep(15)
        assert store.max_offset("%RETRY%g_T", 0) == 1
        store.show_all()
        await asyncio.sleep(5)
        assert store.max_offset("%RETRY%g_T", 0) == 1
        assert case.broker.feature(PopFeature).pop.reviver.in_flight() == []

    run_broker(after)


def life_cut_short(run_broker, tmp_path, life, keep):
    """A life of a broker of which the log has no more than `keep(store)` says, and the offsets less than the log."""
    config = tmp_path / "store" / "config" / "consumerOffset.json"
    kept = []

    async def before(case):
        client = await case.client()
        await send(client, 3)
        first = await pop(case, client)
        await asyncio.sleep(6)
        kept.append(config.read_bytes())
        await life(case, client, first)
        kept.extend((case.broker.store.config, keep(case.broker.store)))

    run_broker(before)
    offsets, store, end = kept
    cut_log(OsFiles(), store, end)
    config.write_bytes(offsets)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_revival_that_a_crash_cut_short_goes_on_behind_its_last_copy(
    run_broker, tmp_path, copies
):
    """Seed 11674 of the group: copies of messages were in the log, and not the acknowledgement that follows them."""

    async def life(case, client, first):
        await asyncio.sleep(7)

    def keep(store):
        place, size, _ = store.queue_units("%RETRY%g_T", 0, 0, 3)[copies - 1]
        return place + size

    life_cut_short(run_broker, tmp_path, life, keep)

    async def after(case):
        client = await case.client()
        await asyncio.sleep(15)
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 3
        assert sorted(bodies(await pop(case, client))) == [b"m0", b"m1", b"m2"]
        await asyncio.sleep(15)
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 6

    run_broker(after)


def test_a_changed_invisible_time_replaces_the_first_though_a_crash_cut_it_short(
    run_broker, tmp_path
):
    """The new check-point was in the log, and not the acknowledgement of the old one that follows it."""
    ends = []

    async def life(case, client, first):
        change = first[1].ack_ext(invisibleTime=20_000)
        before = case.broker.store.max_physical_offset
        assert (await client.call(200053, change)).code == 0
        ends.append(before + len(case.broker.store.record_at(before)))

    life_cut_short(run_broker, tmp_path, life, lambda store: ends[0])

    async def after(case):
        client = await case.client()
        await asyncio.sleep(15)
        assert sorted(bodies(await pop(case, client, invisibleTime=60_000))) == [b"m0", b"m2"]
        await asyncio.sleep(10)
        assert bodies(await pop(case, client)) == [b"m1"]
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 3

    run_broker(after)


def test_messages_of_a_deleted_topic_are_dropped(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        await pop(case, client)
        await client.call(215, {"topic": "T"})
        await asyncio.sleep(13)

        assert case.broker.feature(PopFeature).pop.reviver.in_flight() == []
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 0

    run_broker(scenario)


def test_a_new_topic_of_the_same_name_is_not_taken_for_the_old_one(run_broker, tmp_path):
    config = tmp_path / "store" / "config" / "consumerOffset.json"
    kept = []

    async def before(case):
        client = await case.client()
        await send(client, 6)
        await pop(case, client)
        await client.call(215, {"topic": "T"})
        await send(client, 9)
        await asyncio.sleep(6)
        kept.append(config.read_bytes())
        await asyncio.sleep(7)
        assert case.broker.store.max_offset("%RETRY%g_T", 0) == 0

    async def after(case):
        assert case.broker.tables.offsets.query("g", "T", 0) == -1
        assert len(await pop(case, await case.client())) == 9

    run_broker(before)
    data = kept[0].decode()
    config.write_text(data.replace("SNAPSHOT", "FORGOTTEN").replace("REVIVE_GROUP", "FORGOTTEN2"))
    run_broker(after)


def test_modes_go_with_their_topic(run_broker):
    async def scenario(case):
        client = await case.client()
        for topic in ("T", "U"):
            await client.produce(topic)
            mode = {"topic": topic, "consumerGroup": "g", "mode": "POP"}
            await client.call(401, {}, body(mode))
        await client.call(215, {"topic": "T"})
        rest = decode_body(dict, (await client.call(402, {})).body)["messageRequestModeMap"]
        await client.call(207, {"groupName": "g"})
        none = decode_body(dict, (await client.call(402, {})).body)["messageRequestModeMap"]

        assert list(rest) == ["U"]
        assert none == {"U": {}}

    run_broker(scenario)


def test_a_client_that_went_away_takes_no_message(run_broker):
    async def scenario(case):
        gone, stays = await case.client(), await case.client()
        await stays.produce(body=b"first")
        await pop(case, stays, invisibleTime=60_000)
        gone.send(200050, pop_ext(case.clock.now_ms(), pollTime=10_000))
        await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(
            stays.call(200050, pop_ext(case.clock.now_ms(), pollTime=15_000))
        )
        await asyncio.sleep(0.1)
        gone.writer.close()
        await asyncio.sleep(0.1)
        started = case.loop.time()
        await (await case.client()).produce(body=b"second")

        assert bodies(popped(await waiting)) == [b"second"]
        assert case.loop.time() - started < 1

    run_broker(scenario)


# Waiting


def test_a_waiting_pop_is_woken_by_a_message(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        await other.produce(body=b"first")
        await pop(case, client)
        started = case.loop.time()
        waiting = asyncio.ensure_future(
            client.call(200050, pop_ext(case.clock.now_ms(), pollTime=15_000))
        )
        await asyncio.sleep(1)
        info = await other.call(200055, {"consumerGroup": "g", "topic": "T", "queueId": -1})
        await other.produce(body=b"second", e=2)
        reply = await waiting

        assert case.ext(info) == {"pollingNum": "1"}
        assert bodies(popped(reply)) == [b"second"]
        assert case.loop.time() - started < 1.2

    run_broker(scenario)


def test_a_waiting_pop_is_woken_by_a_retry(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        await pop(case, client)
        started = case.loop.time()
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), pollTime=30_000))

        assert bodies(popped(reply)) == [b"m0"]
        assert 12.0 <= case.loop.time() - started < 12.5

    run_broker(scenario)


def test_a_waiting_pop_ends_when_its_time_is_over(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        await pop(case, client, invisibleTime=60_000)
        started = case.loop.time()
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), pollTime=4_000))

        assert (reply.code, reply.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert 3.8 < case.loop.time() - started < 4.3
        assert case.broker.feature(PopFeature).pop.waiting == 0

    run_broker(scenario)


def test_one_message_wakes_one_of_many(run_broker):
    async def scenario(case):
        clients = [await case.client() for _ in range(3)]
        await clients[0].produce(body=b"first")
        await pop(case, clients[0], invisibleTime=60_000)
        waiting = [
            asyncio.ensure_future(c.call(200050, pop_ext(case.clock.now_ms(), pollTime=5_000)))
            for c in clients
        ]
        await asyncio.sleep(1)
        await (await case.client()).produce(body=b"second")
        replies = await asyncio.gather(*waiting)

        assert sorted(reply.code for reply in replies) == [0, 210, 210]

    run_broker(scenario)


def test_a_backlog_wakes_the_next_one_too(run_broker):
    async def scenario(case):
        clients = [await case.client() for _ in range(2)]
        await clients[0].produce(body=b"first")
        await pop(case, clients[0], invisibleTime=60_000)
        waiting = [
            asyncio.ensure_future(
                c.call(200050, pop_ext(case.clock.now_ms(), pollTime=5_000, maxMsgNums=1))
            )
            for c in clients
        ]
        await asyncio.sleep(1)
        sender = await case.client()
        for _ in range(2):
            sender.send(310, case.send_ext(), b"more")
        replies = await asyncio.gather(*waiting)

        assert [len(popped(reply)) for reply in replies] == [1, 1]

    run_broker(scenario)


def test_too_many_waiting_pops_are_refused(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        await pop(case, client, invisibleTime=60_000)
        for _ in range(3):
            client.send(200050, pop_ext(case.clock.now_ms(), pollTime=60_000, queueId=0))
        full = await client.receive()
        for _ in range(2):
            client.send(200050, pop_ext(case.clock.now_ms(), pollTime=60_000, queueId=1))
        full_in_all = await client.receive()

        assert (full.code, full_in_all.code) == (209, 209)
        assert case.broker.feature(PopFeature).pop.waiting == 3

    run_broker(scenario, broker={"pop_polling_size": 1, "max_pop_polling_size": 3})


def test_notifications(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        await send(other, 1)

        def ask(poll_ms):
            return client.call(
                200054,
                {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": poll_ms,
                 "bornTime": case.clock.now_ms()},
            )  # fmt: skip

        yes = await ask(0)
        await pop(case, client, invisibleTime=60_000)
        no = await ask(2_000)
        waiting = asyncio.ensure_future(ask(20_000))
        await asyncio.sleep(1)
        started = case.loop.time()
        await send(other, 1)
        woken = await waiting

        assert [case.ext(r)["hasMsg"] for r in (yes, no, woken)] == ["true", "false", "true"]
        assert case.ext(no)["pollingFull"] == "false"
        assert case.loop.time() - started < 0.1

    run_broker(scenario)


def test_peeking_leaves_the_messages(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        request = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 2}
        reply = await client.call(200052, request)
        messages = await pop(case, client)
        nothing = await client.call(200052, request)

        assert (reply.code, reply.remark, case.ext(reply)["restNum"]) == (0, "FOUND", "3")
        assert len(messages) == 3
        assert (nothing.code, nothing.remark) == (19, "NO_MESSAGE_IN_QUEUE")

    run_broker(scenario)


@pytest.mark.parametrize(("asked", "shown"), [(2, 2), (33, 32)])
def test_a_peek_shows_no_more_than_is_asked_for_and_than_a_pop_gives(run_broker, asked, shown):
    async def scenario(case):
        client = await case.client()
        await send(client, 40)
        request = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": asked}
        reply = await client.call(200052, request)
        assert len(list(decode_records(reply.body))) == shown

    run_broker(scenario)


# Refusals

BAD = {
    "count": ({"maxMsgNums": 33}, 29, "the broker[10.0.0.1] pop message's num is greater than 32"),
    "topic": ({"topic": "X"}, 17, "topic[X] not exist, apply first please! " + FAQ),
    "queue": ({"queueId": 4}, 29, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]"),
    "group": ({"consumerGroup": "a b"}, 26, "subscription group [a b] does not exist, " + FAQ),
    "group off": ({"consumerGroup": "off"}, 16, "subscription group no permission, off"),
    "tags": ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
    "selector": (
        {"exp": "a >", "expType": "SQL92"},
        23,
        "parse the consumer's subscription failed",
    ),
    "type": ({"exp": "a", "expType": "X"}, 23, "parse the consumer's subscription failed"),
    "unreadable": ({"topic": "W"}, 16, "the topic[W] peeking message is forbidden"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused_pops(run_broker, name):
    fields, code, text = BAD[name]

    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.produce("W")
        config = case.broker.tables.topics.find("W").to_config()
        config.perm = 2
        case.broker.tables.topics.put(config, 0)
        case.broker.tables.groups.find("off", 0).consume_enable = False
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), **fields))

        assert reply.code == code
        assert text in reply.remark
        assert case.ext(reply)["popTime"] == "0"

    run_broker(scenario)


@pytest.mark.parametrize("code", [200050, 200052, 200054, 200055])
def test_a_broker_that_may_not_be_read_refuses(run_broker, code):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.live.update({"brokerPermission": "2"})
        reply = await client.call(code, pop_ext(case.clock.now_ms()))

        assert reply.code == 16
        what = "pop message" if code == 200050 else "peeking message"
        assert reply.remark == f"the broker[10.0.0.1] {what} is forbidden"

    run_broker(scenario)


ACKS = {
    "topic": ({"topic": "X"}, 17, 17),
    "queue": ({"queueId": 9}, 13, 13),
    "negative queue": ({"queueId": -1}, 13, 13),
    "offset": ({"offset": 99}, 208, 208),
    "at the end": ({"offset": 1}, 0, 208),
    "no receipt": ({"extraInfo": "1 2"}, 1, 1),
    "no numbers": ({"extraInfo": "a b c d e f g h"}, 1, 1),
    "foreign revive queue": ({"extraInfo": "0 1 1 77 0 broker-a 0 0"}, 13, 13),
}  # fmt: skip


@pytest.mark.parametrize("name", ACKS)
def test_refused_receipts(run_broker, name):
    fields, ack_code, change_code = ACKS[name]

    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        (message,) = await pop(case, client)
        reply = await ack(client, message, **fields)
        change = await client.call(200053, message.ack_ext(invisibleTime=5) | fields)
        await asyncio.sleep(13)

        assert (reply.code, change.code) == (ack_code, change_code)
        assert bodies(await pop(case, client)) == [b"m0"]

    run_broker(scenario)


def test_the_words_of_a_bad_receipt(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        (message,) = await pop(case, client)
        short = await ack(client, message, extraInfo="1 2")
        far = await ack(client, message, offset=7)

        assert short.remark.endswith("getInvisibleTime fail, extraInfoStrs length 2")
        assert far.remark == "offset is illegal, key:T@0, commit:7, store:0~1"

    run_broker(scenario)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"acks":[{"q":"x"}]}', b'{"acks":[{"r":"7"}]}']
)
def test_bad_batches_are_refused(run_broker, data):
    async def scenario(case):
        client = await case.client()
        reply = await client.call(200151, {}, data)

        assert reply.code in (1, 208)

    run_broker(scenario)


# Orderly


def test_an_orderly_pop_blocks_its_queue_until_it_is_acknowledged(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 4)
        order = {"order": "true", "maxMsgNums": 2}
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), **order))
        ext = case.ext(reply)
        first = popped(reply)
        blocked = await pop(case, client, **order)
        await ack(client, first[0])
        still = await pop(case, client, **order)
        await ack(client, first[1])
        second = await pop(case, client, **order)

        assert (ext["reviveQid"], ext["orderCountInfo"]) == ("999", "0 0 0")
        assert bodies(first) == [b"m0", b"m1"]
        assert blocked == still == []
        assert bodies(second) == [b"m2", b"m3"]
        assert case.broker.tables.offsets.query("g", "T", 0) == 2

    run_broker(scenario)


def test_an_orderly_batch_comes_again_after_its_time_with_its_count(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        await pop(case, client, order="true")
        await asyncio.sleep(10.1)
        reply = await client.call(200050, pop_ext(case.clock.now_ms(), order="true"))

        assert bodies(popped(reply)) == [b"m0", b"m1"]
        assert case.ext(reply)["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 1"

    run_broker(scenario)


def test_the_same_attempt_gets_its_messages_again_at_once(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 2)
        first = await pop(case, client, order="true", attemptId="a1")
        other = await pop(case, client, order="true", attemptId="a2")
        again = await client.call(
            200050, pop_ext(case.clock.now_ms(), order="true", attemptId="a1")
        )

        assert other == []
        assert bodies(popped(again)) == bodies(first)
        assert case.ext(again)["orderCountInfo"] == "0 0 0"

    run_broker(scenario)


def test_waiting_orderly_pops_are_woken_by_the_ack_and_by_time(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        await send(client, 2)
        (message,) = await pop(case, client, order="true", maxMsgNums=1)
        waiting = asyncio.ensure_future(
            other.call(
                200050, pop_ext(case.clock.now_ms(), order="true", pollTime=20_000, maxMsgNums=1)
            )
        )
        await asyncio.sleep(1)
        started = case.loop.time()
        await ack(client, message)
        assert bodies(popped(await waiting)) == [b"m1"]
        assert case.loop.time() - started < 0.2
        reply = await other.call(
            200050, pop_ext(case.clock.now_ms(), order="true", pollTime=20_000, maxMsgNums=1)
        )
        assert bodies(popped(reply)) == [b"m1"]
        assert 9.9 < case.loop.time() - started < 10.5

    run_broker(scenario)


def test_the_invisible_time_of_an_orderly_message_can_be_changed(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 1)
        (message,) = await pop(case, client, order="true")
        reply = await client.call(200053, message.ack_ext(invisibleTime=1_000))
        await asyncio.sleep(1.1)

        assert case.ext(reply)["reviveQid"] == "999"
        assert bodies(await pop(case, client, order="true")) == [b"m0"]

    run_broker(scenario)


def test_orderly_acks_of_others_are_refused_or_passed_over(run_broker):
    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        messages = await pop(case, client, order="true", maxMsgNums=2)
        stranger = await ack(client, messages[0], offset=2)
        await ack(client, messages[0])
        done_before = await ack(client, messages[0])

        assert stranger.code == 13
        assert stranger.remark.startswith(
            "offset is illegal, key:T@g@0, old:0, commit:2, next:-1, "
        )
        assert done_before.code == 0

    run_broker(scenario)


def test_orderly_pops_survive_a_restart(run_broker):
    async def before(case):
        client = await case.client()
        await send(client, 2)
        await pop(case, client, order="true", maxMsgNums=1, invisibleTime=60_000)

    async def after(case):
        client = await case.client()
        assert await pop(case, client, order="true", invisibleTime=60_000) == []

    run_broker(before)
    run_broker(after)


def test_orderly_pops_survive_a_crash(run_broker, tmp_path):
    """Both files on the disk are older than the last pop, ack and change; the revive log knows them."""
    folder = tmp_path / "store" / "config"
    names = ("consumerOffset.json", "consumerOrderInfo.json")
    kept = {}

    async def before(case):
        client = await case.client()
        await send(client, 5)
        for message in await pop(case, client, order="true", maxMsgNums=2):
            await ack(client, message)
        await asyncio.sleep(6)
        kept.update({name: (folder / name).read_bytes() for name in names})
        second = await pop(case, client, order="true", maxMsgNums=2, invisibleTime=5_000)
        await ack(client, second[0])
        await client.call(200053, second[1].ack_ext(invisibleTime=20_000))

    async def after(case):
        client = await case.client()
        await asyncio.sleep(10)
        assert await pop(case, client, order="true") == []
        await asyncio.sleep(17)  # the clock of this run began where that of the first did
        assert bodies(await pop(case, client, order="true")) == [b"m3", b"m4"]

    run_broker(before)
    for name in names:
        (folder / name).write_bytes(kept[name])
    run_broker(after)


# Modes and assignments


def test_request_modes_are_kept(run_broker):
    mode = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3}

    async def before(case):
        client = await case.client()
        await client.produce()
        assert (await client.call(401, {}, body(mode))).code == 0
        wrong = [
            (mode | {"topic": "%RETRY%g"}, 16),
            (mode | {"topic": "X"}, 17),
            (mode | {"consumerGroup": "a b"}, 26),
            (mode | {"mode": "PUSH"}, 29),
        ]
        for request, code in wrong:
            assert (await client.call(401, {}, body(request))).code == code

    async def after(case):
        reply = await (await case.client()).call(402, {})
        assert decode_body(dict, reply.body) == {"messageRequestModeMap": {"T": {"g": mode}}}

    run_broker(before)
    run_broker(after)


def test_an_assignment_tells_how_to_consume(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        beat = {
            "clientID": "c1", "producerDataSet": [],
            "consumerDataSet": [{"groupName": "g", "consumeType": "CONSUME_PASSIVELY",
                                 "messageModel": "CLUSTERING", "subscriptionDataSet": []}],
        }  # fmt: skip
        await client.call(34, {}, body(beat))
        ask = {"topic": "T", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG",
               "messageModel": "CLUSTERING"}  # fmt: skip
        pull = decode_body(dict, (await client.call(400, {}, body(ask))).body)
        mode = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
        await client.call(401, {}, body(mode))
        shared = decode_body(dict, (await client.call(400, {}, body(ask))).body)
        unknown = decode_body(dict, (await client.call(400, {}, body(ask | {"topic": "X"}))).body)

        assert [a["messageQueue"]["queueId"] for a in pull["messageQueueAssignments"]] == [
            0,
            1,
            2,
            3,
        ]
        assert {a["mode"] for a in pull["messageQueueAssignments"]} == {"PULL"}
        assert shared["messageQueueAssignments"] == [
            {"messageQueue": {"topic": "T", "brokerName": "broker-a", "queueId": -1}, "mode": "POP"}
        ]
        assert unknown == {}

    run_broker(scenario)


def test_acknowledgements_and_check_points_are_counted_by_topic_and_group(run_broker):
    async def counted(client, name, key):
        reply = await client.call(315, {"statsName": name, "statsKey": key})
        return decode_body(BrokerStatsData, reply.body).stats_minute.sum if reply.code == 0 else 0

    async def scenario(case):
        client = await case.client()
        await send(client, 3)
        first, second, _ = await pop(case, client)
        await ack(client, first)
        await ack(client, second)
        await case.broker.feature(StatsFeature)._sample_items()
        assert await counted(client, "GROUP_ACK_NUMS", "T@g") == 2
        assert await counted(client, "GROUP_CK_NUMS", "T@g") == 1
        assert await counted(client, "BROKER_ACK_NUMS", "DefaultCluster") == 2
        assert await counted(client, "BROKER_CK_NUMS", "DefaultCluster") == 1

        case.broker.core.stats.forget_group("g")
        assert case.broker.core.stats.acks == case.broker.core.stats.check_points == {}

    run_broker(scenario)


def test_counted_pairs_of_names_that_clients_choose_are_bounded():
    stats = BrokerStats(0, Bound("pairs", 50, ""))
    for number in range(60):
        stats.acked("T", f"g{number}", 1)
    stats.acked("T", "g0", 4)
    assert len(stats.acks) == 50
    assert stats.acks["T", "g0"] == 5
