"""Bytes of the two replication protocols, both sides of each: values in and out, no sockets.

Classic (Apache: DefaultHAConnection, DefaultHAClient): the slave reports 8 bytes, the master sends units with 12 bytes in
front. Handshake (AutoSwitchHAConnection, AutoSwitchHAClient): a greeting of 16 bytes, an answer with the master's epochs,
reports of 12 bytes, units with 36 bytes in front. A unit is a piece of the commit log; one of size 0 is a sign of life.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from roquette.errors import RemoteProtocolError

HANDSHAKE: Final = 1
TRANSFER: Final = 2

MAX_UNIT: Final = 4 << 20  # bytes of the log in one unit: Apache's slave reads into 4 MiB
MAX_EPOCHS: Final = 1 << 16  # entries of an answer to a greeting
MAX_MEMBER: Final = (1 << 32) - 1

Epochs = Sequence[tuple[int, int]]
"""Pairs (epoch, offset of its first byte), in order."""

_REPORT = struct.Struct(">q")
_STATE_REPORT = struct.Struct(">iq")
_HELLO = struct.Struct(">ihhq")
_WELCOME = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_CLASSIC = struct.Struct(">qi")
_UNIT = struct.Struct(">iiqiqq")

_FLAGS: Final = (b"\0\0\0\0", b"\0\0\0\1", b"\0\1\0\0", b"\0\1\0\1")
_HELLO_STATE: Final = b"\0\0\0\1"


class Hello(NamedTuple):
    """A slave's greeting: `member` is its broker id; `last_file_only`: it is new, and does not want the log's older files;
    `learner`: it is not to come into the in-sync set."""

    member: int
    last_file_only: bool = False
    learner: bool = False


class Welcome(NamedTuple):
    """A master's answer to a greeting: the end of its log, its epoch and those of its log."""

    end: int
    epoch: int
    epochs: tuple[tuple[int, int], ...]


class Piece(NamedTuple):
    """Bytes of the log, all of a unit or what has arrived of it.

    Attributes:
        offset: of its first byte; of a sign of life, where the master goes on.
        epoch, epoch_start: of the master's newest epoch in this unit, -1 in the classic protocol.
        confirmed: what readers may see; -1 in the classic protocol.
    """

    offset: int
    data: bytes
    epoch: int = -1
    epoch_start: int = -1
    confirmed: int = -1


def hello(member: int, *, learner: bool = False) -> bytes:
    """A slave's greeting, to be sent in one write: Apache's parser looks after 12 of the 16 bytes."""
    return _HELLO.pack(HANDSHAKE, 0, learner, member)


def report(end: int, *, handshake: bool) -> bytes:
    """A slave's report: its log is written, or synced, up to `end`."""
    return _STATE_REPORT.pack(TRANSFER, end) if handshake else _REPORT.pack(end)


def welcome(end: int, epochs: Epochs) -> bytes:
    """A master's answer to a greeting; `end` of its log. There is at least one epoch."""
    head = _WELCOME.pack(HANDSHAKE, len(epochs) * _EPOCH.size, end, epochs[-1][0])
    return head + b"".join(_EPOCH.pack(*entry) for entry in epochs)


def classic_head(offset: int, size: int) -> bytes:
    """Write the head in front of `size` bytes of the log."""
    return _CLASSIC.pack(offset, size)


def epoch_head(offset: int, size: int, epoch: int, start: int, confirmed: int) -> bytes:
    """The same in the handshake protocol; `epoch`: the one these bytes belong to, `start`: its first offset."""
    return _UNIT.pack(TRANSFER, size, offset, epoch, start, confirmed)


class MasterWire:
    """Master's end of one connection: reads what its slave sends.

    Attributes:
        handshake: which protocol it is; None before enough has arrived to tell.
    """

    __slots__ = ("_held", "handshake")

    def __init__(self) -> None:
        self.handshake: bool | None = None
        self._held = b""

    def receive(self, data: bytes) -> tuple[Hello | None, int | None]:
        """The greeting in these bytes, if there is one, and the newest report, as Apache takes only that.

        Raises:
            RemoteProtocolError: it is neither protocol; the connection must be closed.
        """
        data = self._held + data
        if self.handshake is None:
            self.handshake = _is_handshake(data)
        if self.handshake is None:
            self._held = data
            return None, None
        found = self._states(data) if self.handshake else self._reports(data)
        if found[1] is not None and found[1] < 0:
            raise RemoteProtocolError(f"a replica reports the offset {found[1]}")
        return found

    def _reports(self, data: bytes) -> tuple[None, int | None]:
        whole = len(data) & ~7
        self._held = data[whole:]
        return None, _REPORT.unpack_from(data, whole - 8)[0] if whole else None

    def _states(self, data: bytes) -> tuple[Hello | None, int | None]:
        greeting, end = None, None
        place, size = 0, len(data)
        while size - place >= _STATE_REPORT.size:
            state, number = _STATE_REPORT.unpack_from(data, place)
            if state == TRANSFER:
                end = number
                place += _STATE_REPORT.size
            elif state == HANDSHAKE:
                if size - place < _HELLO.size:
                    break
                _, last, learner, member = _HELLO.unpack_from(data, place)
                if not 0 <= member <= MAX_MEMBER:
                    raise RemoteProtocolError(f"a replica says that its broker id is {member}")
                greeting = Hello(member, last == 1, learner == 1)
                place += _HELLO.size
            else:
                raise RemoteProtocolError(f"a replica sent the state {state}, neither 1 nor 2")
        self._held = data[place:]
        return greeting, end


def _is_handshake(data: bytes) -> bool | None:
    """Return True if a connection begins with a greeting; None: not known yet.

    A greeting begins as a classic report of 4 GiB and a few bytes does. Where both are possible the broker id, small
    and positive, decides: 8 bytes more, which a classic slave sends with its next report.
    """
    if len(data) < 8:
        return None
    if data[:4] != _HELLO_STATE or data[4:8] not in _FLAGS:
        return False
    if len(data) < _HELLO.size:
        return None
    return data[8:12] == bytes(4)


class SlaveWire:
    """Slave's end of one connection: reads what its master sends.

    Args:
        segment_size: of our log. Units must not cross its segments: then the two logs would be cut differently.
    """

    __slots__ = ("_epoch", "_head", "_left", "_offset", "_segment_size", "_state", "handshake")

    def __init__(self, handshake: bool, segment_size: int) -> None:
        self.handshake = handshake
        self._segment_size = segment_size
        self._state = HANDSHAKE if handshake else TRANSFER
        self._head = b""  # the beginning of a head, or of the answer to a greeting
        self._offset = 0  # of the next byte of the unit at hand
        self._left = 0  # bytes of it that have not come
        self._epoch = (-1, -1, -1)

    def receive(self, data: bytes) -> list[Welcome | Piece]:
        """Read the units that these bytes hold, in order. Units come in the pieces in which they arrive.

        Raises:
            RemoteProtocolError: this is not the protocol, or not a log like ours; the connection must be closed.
        """
        found: list[Welcome | Piece] = []
        place, size = 0, len(data)
        while place < size:
            if self._left:
                taken = data[place : place + self._left]
                found.append(Piece(self._offset, taken, *self._epoch))
                self._offset += len(taken)
                self._left -= len(taken)
                place += len(taken)
                continue
            needs = self._head_size() - len(self._head)
            self._head += data[place : place + needs]
            place += needs
            if len(self._head) < self._head_size():
                continue  # more to come, or an answer's entries behind its head
            done = self._welcome() if self._state == HANDSHAKE else self._unit()
            if done is not None:
                found.append(done)
        return found

    def _head_size(self) -> int:
        """Bytes of the head at hand, as far as its length is known."""
        if self._state == TRANSFER:
            return _UNIT.size if self.handshake else _CLASSIC.size
        if len(self._head) < _WELCOME.size:
            return _WELCOME.size
        size: int
        state, size, _, _ = _WELCOME.unpack_from(self._head)
        if state != HANDSHAKE:
            raise RemoteProtocolError(f"the master sent the state {state} for a greeting's answer")
        if size % _EPOCH.size or not 0 <= size <= MAX_EPOCHS * _EPOCH.size:
            raise RemoteProtocolError(f"the master sent {size} bytes of epochs")
        return _WELCOME.size + size

    def _welcome(self) -> Welcome:
        _, _, end, epoch = _WELCOME.unpack_from(self._head)
        epochs = tuple(_EPOCH.iter_unpack(self._head[_WELCOME.size :]))
        if end < 0 or not _in_order(epochs):
            raise RemoteProtocolError(f"the master's log ends at {end}, with epochs out of order")
        self._head, self._state = b"", TRANSFER
        return Welcome(end, epoch, epochs)

    def _unit(self) -> Piece | None:
        """The unit whose head is there; only a sign of life is one already."""
        if self.handshake:
            state, size, offset, *epoch = _UNIT.unpack(self._head)
            if state != TRANSFER:
                raise RemoteProtocolError(f"the master sent the state {state} in front of a unit")
            self._epoch = (epoch[0], epoch[1], epoch[2])
        else:
            offset, size = _CLASSIC.unpack(self._head)
        self._head = b""
        if not 0 <= size <= MAX_UNIT or (offset < 0 and size > 0):
            raise RemoteProtocolError(f"the master sent a unit of {size} bytes at {offset}")
        if size > self._segment_size - offset % self._segment_size:
            raise RemoteProtocolError(
                f"the master sent {size} bytes at {offset}, which cross the end of a file of "
                f"{self._segment_size} bytes: mappedFileSizeCommitLog must be the same on both sides"
            )
        self._offset, self._left = offset, size
        return None if size else Piece(offset, b"", *self._epoch)


def _in_order(epochs: Iterable[tuple[int, int]]) -> bool:
    before = (-1, -1)
    for entry in epochs:
        if entry[0] <= before[0] or entry[1] < before[1]:
            return False
        before = entry
    return True
