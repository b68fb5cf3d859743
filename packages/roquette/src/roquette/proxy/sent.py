"""Answers of brokers to sends and recalls, as far as the proxy reads them. Interpreted: msgspec builds them from the JSON."""

from typing import Final

import msgspec


class SendAnswer(msgspec.Struct, rename="camel", gc=False):
    """Answer to a send; numbers are words."""

    msg_id: str = ""
    queue_offset: str = "0"
    transaction_id: str | None = None
    recall_handle: str | None = None


class Recalled(msgspec.Struct, rename="camel", gc=False):
    """Answer to a recall."""

    msg_id: str = ""


sent: Final = msgspec.json.Decoder(SendAnswer).decode
recalled: Final = msgspec.json.Decoder(Recalled).decode
