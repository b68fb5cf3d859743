"""Handle of one waiting timer message, for the one who may recall it (Apache: RecallMessageHandle)."""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

_VERSION: Final = "v1"


@dataclass(slots=True, frozen=True, kw_only=True)
class RecallHandle:
    """Name of one waiting timer message."""

    topic: str
    broker_name: str
    timestamp: str  # epoch ms within the message's slot
    uniq_key: str

    def encode(self) -> str:
        """The text clients keep: url-safe base64 of five words."""
        words = (_VERSION, self.topic, self.broker_name, self.timestamp, self.uniq_key)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def decode_handle(text: str) -> RecallHandle | None:
    """The handle a client sent; None if it is invalid (RecallMessageHandle.decodeHandle)."""
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
        words = raw.decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    if len(words) < 5 or words[0] != _VERSION:
        return None
    return RecallHandle(topic=words[1], broker_name=words[2], timestamp=words[3], uniq_key=words[4])
