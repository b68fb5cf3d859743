"""One request or response. HOT: compiled by mypyc in the fast build."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from roquette.wire.binary_ext import json_of
from roquette.wire.send_fields import SendFields

RESPONSE_BIT: Final = 1
ONEWAY_BIT: Final = 2


@final
@mypyc_attr(acyclic=True)
class Command:
    """A remoting command (Apache's RemotingCommand), as plain values.

    Attributes:
        opaque: the requester's number, echoed by the response.
        flag: bit 0 marks a response, bit 1 a one-way request.
        packed: the ext fields of a binary header that nobody has asked for as JSON, or empty.
        fields: of a send, what the same pass has read of them; None: `ext` has all.
    """

    __slots__ = (
        "_ext", "body", "code", "fields", "flag", "language", "opaque", "packed", "remark", "version",
    )  # fmt: skip

    def __init__(
        self,
        code: int,
        opaque: int,
        flag: int = 0,
        version: int = 0,
        language: str | int | None = "JAVA",
        remark: str | None = None,
        ext: bytes = b"{}",
        body: bytes = b"",
    ) -> None:
        self.code: int = code
        self.opaque: int = opaque
        self.flag: int = flag
        self.version: int = version
        self.language: str | int | None = language
        self.remark: str | None = remark
        self._ext: bytes = ext
        self.packed: bytes = b""
        self.body: bytes = body
        self.fields: SendFields | None = None

    @property
    def ext(self) -> bytes:
        """The JSON text of the ext fields, undecoded until the row that serves `code` says which header it is; a peer's null
        is `null`."""
        if self.packed:
            self.ext = json_of(self.packed, 0, len(self.packed))
        return self._ext

    @ext.setter
    def ext(self, text: bytes) -> None:
        self._ext = text
        self.packed = b""

    @property
    def ext_size(self) -> int:
        """Bytes of the ext fields as they came."""
        return len(self.packed) or len(self._ext)

    @property
    def is_response(self) -> bool:
        """True for an answer, False for a request."""
        return bool(self.flag & RESPONSE_BIT)

    @property
    def is_oneway(self) -> bool:
        """True for a request that must not be answered."""
        return bool(self.flag & ONEWAY_BIT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def _values(self) -> tuple[object, ...]:
        return (
            self.code, self.opaque, self.flag, self.version, self.language, self.remark, self.ext, self.body,
        )  # fmt: skip

    def __str__(self) -> str:
        kind = "reply" if self.is_response else "oneway" if self.is_oneway else "request"
        ext = self.ext.decode("utf-8", "replace")
        return f"{kind} code={self.code} opaque={self.opaque} ext={ext} body={len(self.body)}B"
