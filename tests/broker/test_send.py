"""Sends, as frames: accepted ones, and each refusal with its code and text."""

import asyncio
import contextlib

import pytest

from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records, encode_batch
from roquette.store.format.config import FlushDiskType

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def stored(client, topic="T", queue_id=0):
    reply = await client.pull(topic, queue_id)
    return decode_records(reply.body, True)


def test_a_send_is_answered_with_ids_and_offsets(run_broker):
    async def scenario(case):
        client = await case.client()

        first = await client.produce()
        second = await client.produce()

        ext = case.ext(second)
        assert (first.code, second.code) == (0, 0)
        assert ext["queueId"] == "0"
        assert ext["queueOffset"] == "1"
        assert ext["msgId"].startswith("0A000001" + "00002A9F")
        assert len(ext["msgId"]) == 32
        assert ext["transactionId"] == "0A0000010001"
        assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("DefaultRegion", "true")

    run_broker(scenario)


def test_the_broker_adds_cluster_region_and_trace_and_keeps_the_rest(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(properties={"UNIQ_KEY": "u1", "TAGS": "A", "mine": "1"})
        [record] = await stored(client)

        assert decode_properties(record.properties) == {
            "UNIQ_KEY": "u1",
            "TAGS": "A",
            "mine": "1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        assert record.body == b"hello"

    run_broker(scenario)


def test_a_missing_unique_key_is_generated_and_told(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce(properties={})
        [record] = await stored(client)

        key = case.ext(reply)["transactionId"]
        assert len(key) == 32
        assert decode_properties(record.properties)["UNIQ_KEY"] == key

    run_broker(scenario)


def test_properties_only_the_broker_may_write_are_replaced_or_dropped(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(
            properties={"CLUSTER": "x", "POP_CK": "1 2", "__RMQ.TRANSIENT.a": "b", "UNIQ_KEY": "u"}
        )
        [record] = await stored(client)

        named = decode_properties(record.properties)
        assert named["CLUSTER"] == "DefaultCluster"
        assert "POP_CK" not in named
        assert "__RMQ.TRANSIENT.a" not in named

    run_broker(scenario)


def test_code_10_takes_the_long_header(run_broker):
    async def scenario(case):
        client = await case.client()
        ext = {
            "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4, "queueId": 2, "sysFlag": 0, "bornTimestamp": 1, "flag": 9,
        }  # fmt: skip
        reply = await client.call(10, ext, b"x")
        [record] = await stored(client, "T", 2)

        assert reply.code == 0
        assert record.flag == 9

    run_broker(scenario)


def test_a_negative_queue_id_lets_the_broker_choose(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce(e=-1)

        assert 0 <= int(case.ext(reply)["queueId"]) < 4

    run_broker(scenario)


@pytest.mark.parametrize("code", [310, 320])
def test_a_topic_without_queues_to_write_has_none_to_choose(run_broker, code):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        config = case.broker.tables.topics.find("T").to_config()
        config.write_queue_nums = 0
        case.broker.tables.topics.put(config, 0)
        body = encode_batch([(0, b"x", b"")]) if code == 320 else b"x"
        reply = await client.call(code, case.send_ext(e=-1), body)

        assert reply.code == 29
        assert (
            "request queueId[-1] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=0"
            in reply.remark
        )

    run_broker(scenario)


def test_one_way_sends_are_stored_and_not_answered(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        client.send(310, case.send_ext(), b"quiet", oneway=True)
        reply = await client.produce()

        assert case.ext(reply)["queueOffset"] == "2"

    run_broker(scenario)


@pytest.mark.parametrize(
    "ext, body, code, text",
    [
        ({"b": "a/b"}, b"x", 29, "The specified topic: a/b, contains illegal characters"),
        ({"b": ".."}, b"x", 29, "contains illegal characters"),
        ({"b": ""}, b"x", 29, "The specified topic is blank."),
        ({"b": "x" * 128}, b"x", 29, "is longer than topic max length: 127"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "New", "c": "nope"}, b"x", 17, "topic[New] not exist, apply first please!" + FAQ),
        ({"e": 9}, b"x", 29, "request queueId[9] is illegal, TopicConfig [topicName=T, readQueueNums=4, "),
        ({}, b"", 13, "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, msg properties length limit 32KB."),
        ({"i": "k\x01" + "v" * 33_000}, b"x", 13, "the message is illegal"),
        ({"f": 4}, b"x", 16, "sending transaction message is forbidden"),
        ({"i": "DELAY\x01soon\x02"}, b"x", 1, "NumberFormatException"),
        ({"i": "INNER_NUM\x012\x02"}, b"x", 13, "the message is illegal"),
    ],
)  # fmt: skip
def test_refusals(run_broker, ext, body, code, text):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        reply = await client.call(310, case.send_ext() | ext, body)

        assert reply.code == code
        assert text in reply.remark
        assert case.ext(reply)["MSG_REGION"] == "DefaultRegion"

    run_broker(scenario)


def test_a_missing_required_field_is_an_error(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.call(310, {"a": "pg"}, b"x")

        assert reply.code == 1

    run_broker(scenario)


def test_auto_creation_switched_off_refuses_with_17(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce("New")

        assert reply.code == 17
        assert reply.remark == "topic[New] not exist, apply first please!" + FAQ

    run_broker(scenario, broker={"auto_create_topic_enable": False})


def test_an_auto_created_topic_has_the_clients_queues_and_is_on_disk_before_the_answer(
    run_broker, tmp_path
):
    async def scenario(case):
        client = await case.client()
        version = case.broker.tables.topics.data_version.counter
        await client.produce("New", d=3)

        topic = case.broker.tables.topics.find("New")
        assert (topic.read_queues, topic.write_queues, topic.perm) == (3, 3, 6)
        assert case.broker.tables.topics.data_version.counter == version + 1
        assert '"New"' in (tmp_path / "store/config/topics.json").read_text()

    run_broker(scenario)


def test_a_topic_that_is_read_only_refuses(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        config = case.broker.tables.topics.find("T").to_config()
        config.perm = 4
        case.broker.tables.topics.put(config, 0)
        reply = await client.produce()

        assert (reply.code, reply.remark) == (16, "the topic[T] sending message is forbidden")

    run_broker(scenario)


def test_a_broker_that_is_read_only_refuses_every_kind_of_send(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.live.update({"brokerPermission": "4"})
        refused = (16, "the broker[10.0.0.1] sending message is forbidden")
        for topic in ("T", "New", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC"):
            for batch in ("false", "true"):
                reply = await client.produce(topic, m=batch)
                assert (reply.code, reply.remark) == refused, (topic, batch)
        assert case.broker.tables.topics.find("New") is None
        assert case.broker.store.max_offset("T", 0) == 1
        assert (await client.pull()).code == 0, "it may be read"

        case.broker.live.update({"brokerPermission": "6"})
        assert (await client.produce()).code == 0

    run_broker(scenario)


def test_a_batch_is_exploded_into_consecutive_offsets(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        entries = [
            (n, b"m%d" % n, encode_properties({"UNIQ_KEY": f"u{n}", "TAGS": "A"}).encode())
            for n in range(3)
        ]
        ext = case.send_ext(properties={"WAIT": "true", "UNIQ_KEY": "of the batch"}, m="true")
        reply = await client.call(320, ext, encode_batch(entries))
        records = await stored(client)

        assert reply.code == 0
        assert case.ext(reply)["queueOffset"] == "1"
        ids = case.ext(reply)["msgId"].split(",")
        assert [int(i[16:], 16) for i in ids] == [r.physical_offset for r in records[1:]]
        assert [r.queue_offset for r in records] == [0, 1, 2, 3]
        assert decode_properties(records[2].properties) == {"UNIQ_KEY": "u1", "TAGS": "A"}

    run_broker(scenario)


@pytest.mark.parametrize(
    "topic, body, text",
    [
        ("%RETRY%g", b"x", "batch request does not support retry group %RETRY%g"),
        ("T", b"torn", "the message is illegal"),
        ("T", b"", "the message is illegal"),
    ],
)
def test_batches_that_are_refused(run_broker, topic, body, text):
    async def scenario(case):
        client = await case.client()
        reply = await client.call(320, case.send_ext(topic, m="true"), body)

        assert reply.code == 13
        assert text in reply.remark

    run_broker(scenario)


def test_under_310_a_header_that_says_batch_makes_a_batch(run_broker):
    async def scenario(case):
        client = await case.client()
        body = encode_batch([(0, b"a", b""), (0, b"b", b"")])
        reply = await client.call(310, case.send_ext(m="true"), body)

        assert len(case.ext(reply)["msgId"].split(",")) == 2

    run_broker(scenario)


def test_a_retry_topic_send_beyond_its_limit_goes_to_the_dead_letters(run_broker):
    async def scenario(case):
        client = await case.client()
        kept = await client.produce("%RETRY%g", j=2, l=2)
        dead = await client.produce("%RETRY%g", j=3, l=2)

        assert (kept.code, dead.code) == (0, 0)
        assert len(await stored(client, "%RETRY%g")) == 1
        assert len(await stored(client, "%DLQ%g")) == 1

    run_broker(scenario)


def test_a_retry_topic_of_an_unknown_group_is_refused(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.produce("%RETRY%g")

        assert reply.code == 26
        assert reply.remark == f"subscription group not exist, g {FAQ}"

    run_broker(scenario, broker={"auto_create_subscription_group": False})


def test_synchronous_flush_answers_after_the_sync(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        reply = await client.produce()

        assert reply.code == 0
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_synchronous_flush_does_not_wait_when_the_message_says_so(run_broker, tmp_path):
    synced = []

    async def scenario(case):
        client = await case.client()
        await client.produce()
        reply = await client.produce(properties={"WAIT": "false", "UNIQ_KEY": "u"})

        assert reply.code == 0
        store = case.broker.store
        synced.append(store.synced_offset == store.max_physical_offset)

    for seed in range(8):  # the sync is under way, and may be there before the answer
        store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "root_dir": str(tmp_path / str(seed))}
        run_broker(scenario, store=store, seed=seed)
    assert not all(synced)


def test_messages_survive_a_restart(run_broker):
    async def first(case):
        client = await case.client()
        await client.produce(body=b"one")
        await client.produce(body=b"two")

    async def second(case):
        client = await case.client()
        records = await stored(client)
        reply = await client.produce()

        assert [r.body for r in records] == [b"one", b"two"]
        assert case.ext(reply)["queueOffset"] == "2"

    run_broker(first)
    run_broker(second)


def test_garbage_closes_the_connection_and_disturbs_nobody(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 100):
            bad = await case.client()
            bad.writer.write(junk)
            with contextlib.suppress(ConnectionError):
                said = await bad.reader.read()
                assert not said or said.startswith((b"This port", b"TLS is disabled", b"HTTP/1.1 "))
        reply = await client.produce()

        assert reply.code == 0

    run_broker(scenario)


@pytest.mark.parametrize(
    "fields",
    [{"h": 2**40}, {"g": 2**63 - 1}, {"j": 2**40}, {"f": 2**40}, {"e": -(2**40)}, {"h": -(2**31)}],
)
def test_numbers_out_of_range_disturb_nobody(run_broker, fields):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.call(310, case.send_ext() | fields, b"odd")
        reply = await client.produce(body=b"after")
        records = await stored(client)

        assert reply.code == 0
        assert records[-1].body == b"after"

    run_broker(scenario)


def test_an_unknown_code_is_not_supported(run_broker):
    async def scenario(case):
        client = await case.client()
        reply = await client.call(9999, {})

        assert (reply.code, reply.remark) == (3, " request type 9999 not supported")

    run_broker(scenario)


def test_the_fast_port_takes_sends_and_no_pulls(run_broker):
    async def scenario(case):
        client = await case.client(10909)
        sent = await client.produce()
        pulled = await client.pull()

        assert sent.code == 0
        assert pulled.code == 3

    run_broker(scenario)


def test_a_full_send_lane_answers_overload(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        opaques = [client.send(310, case.send_ext(), b"x") for _ in range(20)]
        replies = [await client.receive() for _ in opaques]

        busy = [r for r in replies if r.code == 2]
        assert busy
        assert busy[0].remark.startswith("[OVERLOAD]system busy")

    run_broker(scenario, broker={"send_thread_pool_queue_capacity": 1})


def test_stop_answers_what_was_taken_in(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await asyncio.sleep(1)

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
