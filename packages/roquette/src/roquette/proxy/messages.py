"""From a protobuf message to what brokers store: properties, sys flag, body (Apache: SendMessageActivity.buildMessage)."""

from typing import Any, Final

from roquette.message.sysflag import COMPRESSED, TRANSACTION_PREPARED
from roquette.proxy.settings import ProxySettings
from roquette.proxy.validators import Validators, size_of
from roquette.wire.proto.definition_pb2 import Encoding, Message, MessageType, SystemProperties

_LEVEL_SECONDS: Final = (
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540),
    *(600, 1200, 1800, 3600, 7200),
)
MOST_CHARACTERS: Final = 10_922  # of properties in a batch: three bytes each at most
_MOST_SECONDS: Final = 253_402_300_799
_GZIP: Final = int(Encoding.GZIP)
_TRANSACTION: Final = int(MessageType.TRANSACTION)


class Outgoing:
    """A message on its way to a broker.

    Attributes:
        kind: what it is by its properties: TRANSACTION, DELAY, FIFO, LITE, PRIORITY or NORMAL.
        properties: as a property string. attempts: how often it was delivered, as its sender says.
    """

    __slots__ = (
        "attempts", "body", "born_ms", "group", "kind", "message_id", "properties", "sys_flag",
    )  # fmt: skip

    def __init__(self, message_id: str, body: bytes) -> None:
        self.message_id = message_id
        self.body = body
        self.kind = "NORMAL"
        self.group = ""
        self.sys_flag = 0
        self.born_ms = 0
        self.attempts = 0
        self.properties = ""

    @property
    def joins(self) -> bool:
        """It may be one of a batch, which has one sys flag, is stored at once, and has int16 for properties' sizes."""
        plain = not self.sys_flag and self.kind in ("NORMAL", "FIFO")
        return plain and len(self.properties) <= MOST_CHARACTERS


class Converter:
    """Converts messages, and refuses those that are not as they must be."""

    def __init__(self, settings: ProxySettings, validators: Validators) -> None:
        self._check = validators
        self._levels = settings.use_delay_level

    def convert(self, message: Message, topic: str, remote: str, now_ms: int) -> Outgoing:
        """Convert a message to what a broker gets.

        The order of properties is ours: that of Java's hash table has no meaning.

        Args:
            remote: the sender's address, for messages that name no host.

        Raises:
            RpcError: the first thing that is wrong with it, in Apache's order.
        """
        check = self._check
        body = message.body
        check.body(body)
        user = dict(message.user_properties)
        size = check.user_properties(user) if user else 0
        system = message.system_properties
        parts = [f"{key}\x01{value}\x02" for key, value in user.items()]
        tag = system.tag
        if tag:
            check.tag(tag)
            size += size_of(tag)
            parts.append(f"TAGS\x01{tag}\x02")
        keys = system.keys
        if keys:
            for key in keys:
                check.key(key)
                size += size_of(key)
            parts.append(f"KEYS\x01{' '.join(keys)}\x02")
        if size > check.max_size:
            check.total(size)
        message_id = system.message_id
        check.message_id(message_id)
        out = Outgoing(message_id, body)
        parts.append(f"UNIQ_KEY\x01{_value(message_id)}\x02")
        if system.body_encoding == _GZIP:
            out.sys_flag = COMPRESSED
        if system.message_type == _TRANSACTION:
            out.sys_flag |= TRANSACTION_PREPARED
            parts.append("TRAN_MSG\x01true\x02")
            if system.HasField("orphaned_transaction_recovery_duration"):
                seconds = max(system.orphaned_transaction_recovery_duration.seconds, -1)
                check.recovery(seconds)
                parts.append(f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02")
            out.kind = "TRANSACTION"
        if system.HasField("delivery_timestamp"):
            self._delayed(system.delivery_timestamp, now_ms, parts)
            if out.kind == "NORMAL":
                out.kind = "DELAY"
        out.attempts = system.delivery_attempt
        parts.append(f"RECONSUME_TIME\x01{out.attempts}\x02PGROUP\x01{topic}\x02")
        group = system.message_group
        if group:
            check.group(group)
            out.group = group
            parts.append(f"__SHARDINGKEY\x01{group}\x02")
        if out.kind == "NORMAL":
            out.kind = self._plain_kind(system, group or user.get("__SHARDINGKEY", ""))
        if system.HasField("priority"):
            check.priority(system.priority)
            parts.append(f"_SYS_MSG_PRIORITY_\x01{system.priority}\x02")
        trace = system.trace_context
        if trace:
            parts.append(f"TRACE_CONTEXT\x01{_value(trace)}\x02")
        host = system.born_host
        out.born_ms = _ms(system.born_timestamp) or now_ms
        host = remote if not host or host.isspace() else _value(host)
        parts.append(f"__BORNHOST\x01{host}\x02BORN_TIMESTAMP\x01{out.born_ms}\x02")
        out.properties = "".join(parts)
        return out

    def _delayed(self, at: Any, now_ms: int, parts: list[str]) -> None:
        at_ms = max(_ms(at), 1)
        self._check.delivery(at_ms, now_ms)
        if self._levels:
            parts.append(f"DELAY\x01{delay_level(at_ms - now_ms)}\x02")
        parts.append(f"TIMER_DELIVER_MS\x01{at_ms}\x02")

    @staticmethod
    def _plain_kind(system: SystemProperties, group: str) -> str:
        if group:
            return "FIFO"
        if system.lite_topic:
            return "LITE"
        return "PRIORITY" if system.HasField("priority") else "NORMAL"


def delay_level(wait_ms: int) -> int:
    """The first of the default delay levels that is longer than a wait, else the last (ProxyConfig.computeDelayLevel)."""
    for level, seconds in enumerate(_LEVEL_SECONDS, 1):
        if seconds * 1000 > wait_ms:
            return level
    return len(_LEVEL_SECONDS)


def _ms(at: Any) -> int:
    """A Timestamp in epoch ms; 0: none, or not of the years 1 to 9999."""
    seconds: int = at.seconds
    return seconds * 1000 + at.nanos // 1_000_000 if abs(seconds) <= _MOST_SECONDS else 0


def _value(text: str) -> str:
    """A value that adds no properties: Apache lets these three have any characters."""
    return text.replace("\x02", "") if not text.isprintable() else text
