"""Who makes the calls of one connection, and what the session needs of a call's metadata. HOT: read with every call."""

from typing import Final

from roquette.proxy.service import Asks, Caller
from roquette.remoting.request import Peer
from roquette.wire.grpc import Metadata
from roquette.wire.http2 import Fields

MOST_CALLERS: Final = 64  # of one connection that are remembered
LONGEST: Final = 1_024  # bytes of a name that a caller says of itself,
SHORT: Final = 64  # and of its language and versions: the rest is cut off


CallerKey = tuple[bytes, bytes, bytes]
"""Client id, namespace and access key, as they came."""


class Callers:
    """The clients of one connection: one `Caller` for all calls of a client id in a namespace with an access key.

    Attributes:
        size: bytes of the last call's caller, if it is not remembered and goes with that call.
        path, kind, timeout, encoding: of the last call that was read; kind: its content type. None: it names none.
    """

    __slots__ = (
        "_asks", "_client", "_known", "_namespace", "_peer", "_signer",
        "encoding", "kind", "path", "size", "timeout",
    )  # fmt: skip

    def __init__(self, peer: Peer, asks: Asks) -> None:
        self._peer: Peer = peer
        self._asks: Asks = asks
        self._known: dict[CallerKey, Caller] = {}
        self._client: bytes = b""
        self._namespace: bytes = b""
        self._signer: bytes = b""
        self.size: int = 0
        self.path: bytes | None = None
        self.kind: bytes = b""
        self.timeout: bytes | None = None
        self.encoding: bytes | None = None

    def read(self, fields: Fields) -> None:
        """Take what the session needs of a call's metadata; of what comes twice the last one counts."""
        self.path = self.timeout = self.encoding = None
        self.kind = self._client = self._namespace = self._signer = b""
        for field in fields:
            name = field[0]
            size = len(name)
            if size == 5:
                if name == b":path":
                    self.path = field[1]
            elif size == 12:
                if name == b"grpc-timeout":
                    self.timeout = field[1]
                elif name == b"content-type":
                    self.kind = field[1]
            elif size == 13:
                if name == b"grpc-encoding":
                    self.encoding = field[1]
                elif name == b"authorization":
                    self._signer = field[1]
            elif size == 14:
                if name == b"x-mq-client-id":
                    self._client = field[1]
                elif name == b"x-mq-namespace":
                    self._namespace = field[1]

    def caller(self, fields: Fields) -> Caller:
        """Return the caller that makes the call whose metadata were read."""
        signer = self._signer
        if signer:
            signer = signer.partition(b",")[0]
        key = self._client, self._namespace, signer
        self.size = 0
        caller = self._known.get(key)
        return self._new(dict(fields), key) if caller is None else caller

    def _new(self, fields: Metadata, key: CallerKey) -> Caller:
        get = fields.get
        caller = Caller(self._peer, _text(key[0]), self._asks)
        caller.namespace = _text(key[1])
        caller.language = _text(get(b"x-mq-language", b"")[:SHORT])
        caller.version = _text(get(b"x-mq-client-version", b"")[:SHORT])
        caller.protocol = _text(
            (get(b"x-mq-protocol", b"") or get(b"x-mq-protocol-version", b""))[:SHORT]
        )
        caller.authority = _text(get(b":authority", b""))
        if len(self._known) < MOST_CALLERS:
            self._known[key] = caller
        else:
            self.size = 4 * (len(caller.client_id) + len(caller.namespace) + len(caller.authority))
        return caller


def _text(value: bytes) -> str:
    return value[:LONGEST].decode("utf-8", "replace")
