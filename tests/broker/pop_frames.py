"""Frames of POP, as clients send and read them."""

import json
from typing import Any

from roquette.message.properties import decode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.wire.command import Command
from roquette.wire.header_codec import ext_dict


def pop_ext(now_ms: int, **more: Any) -> dict[str, Any]:
    """A pop of every queue that does not wait; keyword arguments replace fields."""
    base = {
        "consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 10_000,
        "pollTime": 0, "bornTime": now_ms, "initMode": 0, "order": "false", "expType": "TAG", "exp": "*",
    }  # fmt: skip
    return base | more


class Popped:
    """One message of a pop and the receipt a client makes for it (MQClientAPIImpl.processPopResponse)."""

    def __init__(self, record: StoredRecord, ext: dict[str, str], broker: str) -> None:
        named = decode_properties(record.properties)
        self.record = record
        self.body = record.body
        self.topic = record.topic
        self.reconsume_times = record.reconsume_times
        starts = {
            tuple(entry.split(" ")[:2]): entry.split(" ")[2]
            for entry in ext["startOffsetInfo"].split(";")
        }
        self.receipt = named.get("POP_CK") or " ".join(
            (
                starts[("0", str(record.queue_id))],
                ext["popTime"],
                ext["invisibleTime"],
                ext["reviveQid"],
                "0",
                broker,
                str(record.queue_id),
                str(record.queue_offset),
            )
        )
        kind = self.receipt.split(" ")[4]
        group_topic = {"0": "{t}", "1": "%RETRY%{g}_{t}", "2": "%RETRY%{g}+{t}"}[kind]
        self.named = named
        self.real_topic = group_topic

    def ack_ext(self, group: str = "g", **more: Any) -> dict[str, Any]:
        """The header of its acknowledgement."""
        real = self.real_topic.format(g=group, t=self.record.topic)
        base = {
            "consumerGroup": group, "topic": real, "queueId": self.record.queue_id,
            "extraInfo": self.receipt, "offset": self.record.queue_offset,
        }  # fmt: skip
        return base | more


def popped(reply: Command, broker: str = "broker-a") -> list[Popped]:
    """The messages of a pop's answer."""
    if reply.code != 0:
        return []
    ext = ext_dict(reply.ext)
    return [Popped(record, ext, broker) for record in decode_records(reply.body, True)]


async def pop(case: Any, client: Any, **more: Any) -> list[Popped]:
    """Pop without waiting."""
    return popped(await client.call(200050, pop_ext(case.clock.now_ms(), **more)))


async def ack(client: Any, message: Popped, group: str = "g", **more: Any) -> Command:
    """Acknowledge one message."""
    reply: Command = await client.call(200051, message.ack_ext(group, **more))
    return reply


def body(value: Any) -> bytes:
    """A JSON body."""
    return json.dumps(value).encode()
