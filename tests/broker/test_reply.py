"""Request-reply as frames: the reply reaches who asked, and every way in which it cannot."""

import asyncio

import pytest

from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records

TOPIC = "DefaultCluster_REPLY_TOPIC"
NAMED = {
    "CORRELATION_ID": "c-1",
    "REPLY_TO_CLIENT": "asker",
    "TTL": "3000",
    "MSG_TYPE": "reply",
    "UNIQ_KEY": "u1",
    "TAGS": "A",
}


def reply_ext(**changes):
    """The V2 header of a reply."""
    return {
        "a": "pg", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 3,
        "i": encode_properties(NAMED), "j": 0, "k": "false", "m": "false",
    } | changes  # fmt: skip


async def register(client, client_id="asker"):
    body = b'{"clientID":"%b","producerDataSet":[{"groupName":"pg"}],"consumerDataSet":[]}'
    assert (await client.call(34, {}, body % client_id.encode())).code == 0


async def answer_one(client, code=0, remark=None):
    """What the asking client does: take the reply and say that it has it."""
    command = await client.receive()
    client.wire.send_reply(command.opaque, code, remark, b"", b"")
    client.writer.write(b"".join(client.wire.data_to_send()))
    return command


async def stored(client):
    reply = await client.pull(TOPIC, suspendTimeoutMillis=0)
    return decode_records(reply.body, True) if reply.code == 0 else []


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_reaches_who_asked_and_is_kept(run_broker, code):
    async def scenario(case):
        asker, replier = await case.client(), await case.client()
        await register(asker)
        ext = reply_ext()
        if code == 324:
            words = [
                "producerGroup",
                "topic",
                "defaultTopic",
                "defaultTopicQueueNums",
                "queueId",
                "sysFlag",
                "bornTimestamp",
                "flag",
                "properties",
                "reconsumeTimes",
                "unitMode",
            ]
            ext = {word: ext[letter] for word, letter in zip(words, "abcdefghijk", strict=True)}

        reply, pushed = await asyncio.gather(
            replier.call(code, ext, b"the answer"), answer_one(asker)
        )

        assert pushed.code == 326 and not pushed.flag & 2
        assert pushed.body == b"the answer"
        told = case.ext(pushed)
        named = decode_properties(told.pop("properties"))
        assert int(named.pop("PUSH_REPLY_TIME")) > 0 and named == NAMED
        host, port = told.pop("bornHost").rsplit(":", 1)
        assert host and int(port)
        assert told.pop("storeTimestamp").startswith("17000000")
        assert told == {
            "storeHost": "10.0.0.1:10911",
            "producerGroup": "pg",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "3",
            "reconsumeTimes": "0",
            "unitMode": "false",
        }
        [record] = await stored(replier)
        assert record.body == b"the answer"
        assert decode_properties(record.properties) == NAMED  # as it came
        ext = case.ext(reply)
        assert (reply.code, reply.remark) == (0, None)
        assert (ext["queueId"], ext["queueOffset"]) == ("0", "0")
        assert int(ext["msgId"][-16:], 16) == record.physical_offset
        assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("DefaultRegion", "true")

    run_broker(scenario)


def test_without_the_wish_to_keep_it_only_passes(run_broker):
    async def scenario(case):
        asker, replier = await case.client(), await case.client()
        await register(asker)
        reply, _ = await asyncio.gather(replier.call(325, reply_ext(), b"x"), answer_one(asker))
        ext = case.ext(reply)
        assert (reply.code, ext["msgId"], ext["queueOffset"]) == (0, "0", "0")
        assert await stored(replier) == []

    run_broker(scenario, broker={"store_reply_message_enable": False})


@pytest.mark.parametrize(
    ("named", "remark"),
    [
        ({"REPLY_TO_CLIENT": "nobody"}, "push reply message fail, channel of <nobody> not found."),
        ({"TAGS": "A"}, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_a_reply_to_nobody(run_broker, named, remark):
    async def scenario(case):
        client = await case.client()
        await register(client)
        reply = await client.call(325, reply_ext(i=encode_properties(named)), b"x")
        assert (reply.code, reply.remark) == (1, remark)
        assert len(await stored(client)) == 1  # Apache keeps it all the same

    run_broker(scenario)


def test_a_client_that_has_gone_is_not_found(run_broker):
    async def scenario(case):
        asker, replier = await case.client(), await case.client()
        await register(asker)
        asker.writer.close()
        await asyncio.sleep(0.1)
        reply = await replier.call(325, reply_ext(), b"x")
        assert reply.remark == "push reply message fail, channel of <asker> not found."

    run_broker(scenario)


def test_a_client_that_refuses_or_is_silent(run_broker):
    async def scenario(case):
        asker, replier = await case.client(), await case.client()
        await register(asker)
        reply, _ = await asyncio.gather(
            replier.call(325, reply_ext(), b"x"), answer_one(asker, 1, "no")
        )
        assert (reply.code, reply.remark) == (1, "push reply message to askerfail.")
        began = case.loop.time()
        reply = await replier.call(325, reply_ext(), b"x")
        assert (reply.code, reply.remark) == (1, "push reply message to askerfail.")
        assert 9.9 < case.loop.time() - began < 11

    run_broker(scenario)


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "no/name"}, 29, "contains illegal characters"),
        ({"e": 5}, 29, "request queueId[5] is illegal"),
        ({"b": "unknown", "c": "none"}, 17, "topic[unknown] not exist"),
    ],
)  # fmt: skip
def test_bad_replies_are_refused_and_neither_passed_on_nor_kept(run_broker, changes, code, remark):
    async def scenario(case):
        asker, replier = await case.client(), await case.client()
        await register(asker)
        reply = await replier.call(325, reply_ext(**changes), b"x")
        assert reply.code == code and remark in reply.remark
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asker.receive(), 0.1)
        assert case.broker.store.max_physical_offset == 0

    run_broker(scenario)


def test_the_newest_connection_of_a_client_gets_its_replies(run_broker):
    async def scenario(case):
        old, new, replier = [await case.client() for _ in range(3)]
        await register(old)
        await register(new)
        old.writer.close()
        await asyncio.sleep(0.1)
        reply, _ = await asyncio.gather(replier.call(325, reply_ext(), b"x"), answer_one(new))
        assert reply.code == 0

    run_broker(scenario)
