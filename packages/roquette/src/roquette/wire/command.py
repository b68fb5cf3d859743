"""One request or response. Interpreted: msgspec builds it straight from the header JSON."""

import msgspec

from roquette.wire.json_body import Int32

RESPONSE_BIT = 1
ONEWAY_BIT = 2


class Command(msgspec.Struct, gc=False, kw_only=True):
    """A remoting command (Apache's RemotingCommand), as plain values.

    `ext` stays undecoded until the row that serves `code` says which header it is. `opaque` is the
    requester's number, echoed by the response; `flag` bit 0 marks a response, bit 1 a one-way request.
    """

    code: Int32
    opaque: Int32
    flag: Int32 = 0
    version: Int32 = 0
    language: str | int | None = "JAVA"
    remark: str | None = None
    # Not `Raw | None`: msgspec would then take nothing but null. A peer's null arrives as Raw(b"null").
    ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw(b"{}"))
    body: bytes = msgspec.field(name="-body", default=b"")  # not in the JSON: set by the frame

    @property
    def is_response(self) -> bool:
        """True for an answer, False for a request."""
        return bool(self.flag & RESPONSE_BIT)

    @property
    def is_oneway(self) -> bool:
        """True for a request that must not be answered."""
        return bool(self.flag & ONEWAY_BIT)

    def __str__(self) -> str:
        kind = "reply" if self.is_response else "oneway" if self.is_oneway else "request"
        ext = bytes(self.ext).decode("utf-8", "replace")
        return f"{kind} code={self.code} opaque={self.opaque} ext={ext} body={len(self.body)}B"
