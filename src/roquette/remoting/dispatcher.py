"""Command -> row -> lane -> processor -> outcome, drained once per loop turn.

All requests that arrived in one turn of the event loop are processed together, then `end_turn` runs once
(the broker writes its log and wakes held pulls there), then every connection gets one write. No task per
request: a processor is a plain function. HOT: compiled by mypyc in the fast build.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

import msgspec

from roquette.base.clock import Clock
from roquette.base.descriptors import SHORTAGE, shortage_words
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import ConnectError, LocalProtocolError, Refused
from roquette.remoting.lanes import LaneLimits
from roquette.remoting.outcomes import Held, Later, Outcome, Reply, Silent, Task
from roquette.remoting.pending import PendingTable
from roquette.remoting.promises import Promise
from roquette.remoting.running import Running
from roquette.remoting.unfinished import (
    JOIN_BELOW,
    PeerLimits,
    Unfinished,
    cut,
    make_room,
    note_unsent,
)
from roquette.wire.command import Command
from roquette.wire.connection import Connection
from roquette.wire.header_codec import NOT_FAST, BadHeader, HeaderDecoder

log = logging.getLogger("roquette.remoting")

SYSTEM_ERROR: Final = 1
SYSTEM_BUSY: Final = 2
NOT_SUPPORTED: Final = 3
NO_ROOM: Final = (
    "[OVERLOAD]no memory for this request now: too many are under way; send it again later"
)
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
FAILED: Final = "the request failed inside the server, whose log says why"
LINGER_S: Final = 10.0
BACKLOG: Final = 1 << 20  # bytes of answers a peer may have unwritten: its further requests wait


class Row:
    """One served request code: who processes it, what its header is, which lane it queues in, and what its
    answer promises."""

    __slots__ = ("code", "coerce", "decode", "lane", "process", "promise")

    def __init__(
        self,
        code: int,
        process: Callable[..., Any],
        header: type[msgspec.Struct] | None,
        lane: int,
        promise: Promise = Promise.NOTHING,
    ) -> None:
        self.code: int = int(code)
        self.process: Callable[..., Any] = process
        decoder = None if header is None else HeaderDecoder(header)
        self.decode: Callable[..., Any] | None = None if decoder is None else decoder.fast
        self.coerce: Callable[..., Any] | None = None if decoder is None else decoder.coerce
        self.lane: int = lane
        self.promise: Promise = promise


class Peer:
    """One connection as dispatcher and processors see it."""

    __slots__ = (
        "_dispatcher",
        "asked",
        "behind",
        "closed",
        "crowded",
        "dirty",
        "ending",
        "half",
        "host",
        "id",
        "last_active",
        "local",
        "parked",
        "paused",
        "pending",
        "reads_less",
        "remote",
        "running",
        "transport",
        "unwritten",
        "wire",
    )

    def __init__(
        self,
        dispatcher: "Dispatcher",
        transport: asyncio.Transport,
        number: int,
        host: bytes,
        remote: str,
        local: str,
    ) -> None:
        self.wire: Connection = Connection()
        self.transport: asyncio.Transport = transport
        self.id: int = number
        self.host: bytes = host  # ip and port, as stored in records: 8 or 20 bytes
        self.remote: str = remote  # "ip:port"
        self.local: str = local
        self.pending: PendingTable = PendingTable()
        self.last_active: float = 0.0  # loop seconds
        self.dirty: bool = False
        self.closed: bool = False
        self.ending: bool = (
            False  # it broke the protocol: no request more, then see `Dispatcher.finish`
        )
        self.asked: int = 0  # requests that are not answered yet
        self.half: Unfinished | None = None  # its unfinished frame
        self.behind: Unfinished | None = None  # its answers that wait for it
        self.paused: bool = False  # it does not read: see `Dispatcher.pause`
        self.running: int = 0  # its requests that are at work in tasks: see `Running`
        self.crowded: bool = False  # too many are: its further requests wait
        self.reads_less: bool = True  # it is not read from then
        self.unwritten: int = 0  # bytes of bodies in this turn's answers
        self.parked: list[RequestContext] = []  # requests that wait until it reads again
        self._dispatcher: Dispatcher = dispatcher

    def notify(self, code: int, ext: bytes = b"", body: bytes = b"") -> None:
        """Send a one-way request to the peer; nothing happens when it is gone."""
        if not self.closed:
            self.wire.send_request(code, ext, body, True)
            self._dispatcher.mark(self)

    def invoke(
        self, code: int, ext: bytes, body: bytes, timeout_ms: int
    ) -> "asyncio.Future[Command]":
        """Send a request to the peer; the future gets the answer, or RequestTimeout or ConnectError."""
        loop = self._dispatcher.loop
        future: asyncio.Future[Command] = loop.create_future()
        if self.closed:
            future.set_exception(ConnectError(f"connection to {self.remote} is closed"))
            return future
        self.pending.check()
        opaque = self.wire.send_request(code, ext, body, False)
        self.pending.add(opaque, future, loop.time() + timeout_ms / 1000)
        self._dispatcher.mark(self)
        return future

    def soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Call in the loop's next turn."""
        self._dispatcher.loop.call_soon(call, *args)

    def __repr__(self) -> str:
        return f"<Peer {self.remote}>"


class RequestContext:
    """One request on its way: what a processor may know of it besides header and body.

    Attributes:
        arrived_ms, steady_ms: steady time of its arrival, and of now. `now_ms`: wall time.
    """

    __slots__ = (
        "arrived_ms",
        "command",
        "header",
        "may_hold",
        "now_ms",
        "peer",
        "row",
        "steady_ms",
    )

    def __init__(self, peer: Peer, command: Command, row: Row, arrived_ms: int) -> None:
        self.peer: Peer = peer
        self.command: Command = command
        self.row: Row = row
        self.arrived_ms: int = arrived_ms
        self.now_ms: int = 0  # until it runs
        self.steady_ms: int = arrived_ms
        self.may_hold: bool = True
        self.header: Any = None


H = TypeVar("H", bound=msgspec.Struct)


@overload
def row(
    code: int,
    process: Callable[[RequestContext, None, bytes], Outcome],
    header: None,
    lane: int,
    promise: Promise,
) -> Row: ...
@overload
def row(
    code: int,
    process: Callable[[RequestContext, H, bytes], Outcome],
    header: type[H],
    lane: int,
    promise: Promise,
) -> Row: ...
def row(
    code: int,
    process: Callable[..., Outcome],
    header: type[msgspec.Struct] | None,
    lane: int,
    promise: Promise,
) -> Row:
    """A `Row` whose processor takes the header that is decoded for it: the type checker refuses another."""
    return Row(code, process, header, lane, promise)


class _Lane:
    __slots__ = ("jobs", "limits")

    def __init__(self, limits: LaneLimits) -> None:
        self.jobs: list[RequestContext] = []
        self.limits: LaneLimits = limits


def _nothing() -> None:
    return None


class Dispatcher:
    """Runs the processors of one server (or of a client, for requests its servers send).

    Args:
        rows: what is served.
        lanes: bounds, indexed by `Row.lane`.
        end_turn: runs after the requests of a turn and before anything is written.
        on_later, on_held: park a request; `answer` and `rerun` bring it back.
    """

    def __init__(
        self,
        rows: list[Row],
        lanes: list[LaneLimits],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        tasks: Tasks,
        end_turn: Callable[[], None] = _nothing,
        on_later: Callable[[RequestContext, Later], None] | None = None,
        on_held: Callable[[RequestContext, Held], None] | None = None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.unsupported: int = 0
        self.crashed: int = 0  # requests that failed by a defect of ours
        self.refused: int = 0
        self._rows: dict[int, Row] = {}
        for row in rows:
            assert row.code not in self._rows, f"two rows for code {row.code}"
            self._rows[row.code] = row
        self._lanes: list[_Lane] = [_Lane(limits) for limits in lanes]
        self._clock: Clock = clock
        self._tasks: Tasks = tasks
        self._end_turn: Callable[[], None] = end_turn
        self._on_later: Callable[[RequestContext, Later], None] | None = on_later
        self._on_held: Callable[[RequestContext, Held], None] | None = on_held
        self.running: Running = Running()
        self.limits: PeerLimits = PeerLimits()
        self._scheduled: bool = False
        self._dirty: list[Peer] = []
        self._noise: RateLimited = RateLimited(log, clock)

    def limit(self, lanes: list[LaneLimits]) -> None:
        """Take over other bounds; what waits stays."""
        for lane, limits in zip(self._lanes, lanes):
            lane.limits = limits

    def lane_sizes(self) -> list[tuple[str, int, int, int]]:
        """Per lane: name, waiting requests, capacity, age of the oldest in ms."""
        now = self._clock.steady_ms()
        found: list[tuple[str, int, int, int]] = []
        for lane in self._lanes:
            age = now - lane.jobs[0].arrived_ms if lane.jobs else 0
            found.append((lane.limits.name, len(lane.jobs), lane.limits.capacity, age))
        return found

    def receive(self, peer: Peer, commands: list[Command]) -> None:
        """Take in complete commands: answers go to their futures, requests into their lanes."""
        steady_ms = self._clock.steady_ms()
        rows = self._rows
        peer.asked += len(commands)
        for command in commands:
            if command.flag & 1:
                peer.asked -= 1
                if not peer.pending.resolve(command):
                    self._noise.warning(
                        "unmatched",
                        "answer without a request peer=%s opaque=%d",
                        peer.remote,
                        command.opaque,
                    )
                continue
            row = rows.get(command.code)
            if row is None:
                self.unsupported += 1
                self._noise.warning(
                    "code", "request code is not served code=%d peer=%s", command.code, peer.remote
                )
                self._answer(
                    peer,
                    command,
                    NOT_SUPPORTED,
                    f" request type {command.code} not supported",
                    b"",
                    b"",
                )
                continue
            lane = self._lanes[row.lane]
            if len(lane.jobs) >= lane.limits.capacity:
                self.refused += 1
                self._answer(peer, command, SYSTEM_BUSY, OVERLOAD, b"", b"")
                continue
            lane.jobs.append(RequestContext(peer, command, row, steady_ms))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Everything that arrived since the last turn: process, finish the turn, write."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        more = False
        try:
            busy: bool = self.running.full
            for lane in self._lanes:
                if lane.jobs:
                    jobs = lane.jobs
                    budget: int = lane.limits.budget
                    if len(jobs) > budget:
                        lane.jobs = jobs[budget:]
                        jobs = jobs[:budget]
                        more = True
                    else:
                        lane.jobs = []
                    wait_ms: int = lane.limits.wait_ms
                    for job in jobs:
                        peer = job.peer
                        if peer.paused or peer.crowded or peer.unwritten > BACKLOG:
                            peer.parked.append(job)
                        elif wait_ms and steady_ms - job.arrived_ms >= wait_ms:
                            self._too_late(job, steady_ms, len(lane.jobs))
                        elif busy:
                            self.refused += 1
                            self._answer(peer, job.command, SYSTEM_BUSY, OVERLOAD, b"", b"")
                        else:
                            job.now_ms = now_ms
                            job.steady_ms = steady_ms
                            self._run(job)
            self._end_turn()
        finally:
            self._scheduled = False  # only now: answers of this turn need no turn of their own
        self._flush()
        if more:
            self._schedule()

    def pause(self, peer: Peer) -> None:
        """`peer` does not take its answers: what it asked for waits, so that its backlog stays bounded."""
        peer.paused = True

    def resume(self, peer: Peer) -> None:
        """`peer` takes answers again: what waited goes on."""
        peer.paused = False
        if not peer.crowded:
            self._unpark(peer)

    def _unpark(self, peer: Peer) -> None:
        parked = peer.parked
        if parked:
            peer.parked = []
            if not peer.closed:
                for job in parked:
                    self._lanes[job.row.lane].jobs.append(job)
                self._schedule()

    def _too_late(self, job: RequestContext, steady_ms: int, size: int) -> None:
        """Apache's BrokerFastFailure: what waited too long is refused, so that the client turns elsewhere."""
        self.refused += 1
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{steady_ms - job.arrived_ms}ms, size of queue: {size}"
        )
        self._answer(job.peer, job.command, SYSTEM_BUSY, remark, b"", b"")

    def _run(self, job: RequestContext) -> None:
        command = job.command
        try:
            header = job.header
            if header is None:
                decode = job.row.decode
                if decode is not None:
                    try:
                        header = decode(command.ext)
                    except NOT_FAST:
                        coerce = job.row.coerce
                        assert coerce is not None
                        header = coerce(command.ext)
                    job.header = header
            outcome = job.row.process(job, header, command.body)
        except Refused as refusal:
            self._answer(job.peer, command, refusal.code, refusal.remark, refusal.ext, b"")
            return
        except BadHeader as error:
            self._answer(job.peer, command, SYSTEM_ERROR, str(error), b"", b"")
            return
        except Exception as error:  # noqa: BLE001 - a defect of one request ends no server
            self.answer(job, self._failed(job, error))
            return
        if isinstance(outcome, Reply):
            self.answer(job, outcome)
        elif isinstance(outcome, Later):
            assert self._on_later is not None
            self._on_later(job, outcome)
        elif isinstance(outcome, Held):
            assert self._on_held is not None
            self._on_held(job, outcome)
        elif isinstance(outcome, Task):
            self.running.began(job.peer)
            self._tasks.start(f"request-{command.code}", self._finish(job, outcome))
        else:
            assert isinstance(outcome, Silent), outcome
            job.peer.asked -= 1

    async def _finish(self, job: RequestContext, task: Task) -> None:
        try:
            reply = await task.work
        except Refused as refusal:
            reply = Reply(refusal.ext, None, refusal.code, refusal.remark)
        except Exception as error:  # noqa: BLE001 - see _run
            reply = self._failed(job, error)
        finally:
            if self.running.ended(job.peer) and not job.peer.paused:
                self._unpark(job.peer)
        if reply is not None:
            self.answer(job, reply)
        else:
            job.peer.asked -= 1

    def _failed(self, job: RequestContext, error: Exception) -> Reply:
        """A shortage, or a defect of ours: the log has its words, the peer gets a sentence without Python's."""
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            words = shortage_words(error)
            self._noise.warning("short", "request not served: %s", words)
            return Reply(b"", None, SYSTEM_BUSY, f"[OVERLOAD]the server is {words}. Try again")
        if isinstance(error, MemoryError):
            self.refused += 1
            self._noise.warning(
                "memory", "memory is short, a request is refused peer=%s", job.peer.remote
            )
            return Reply(b"", None, SYSTEM_BUSY, NO_ROOM)
        self.crashed += 1
        code = job.command.code
        self._noise.warning(
            f"crash{code}",
            "processor failed code=%d peer=%s error=%r",
            code,
            job.peer.remote,
            error,
        )
        log.debug("processor failed", exc_info=error)
        return Reply(b"", None, SYSTEM_ERROR, FAILED)

    def rerun(self, job: RequestContext, *, may_hold: bool) -> None:
        """Run a held request again, now."""
        if not job.peer.closed:
            job.now_ms, job.steady_ms = self._clock.now_ms(), self._clock.steady_ms()
            job.may_hold = may_hold
            self._run(job)

    def answer(self, job: RequestContext, reply: Reply) -> None:
        """Queue a reply; it leaves at the end of this turn, or of the next one."""
        body = reply.body
        if body is None:
            data = b""
        elif isinstance(body, list):
            data = b"".join(body)
        else:
            data = body
        self._answer(job.peer, job.command, reply.code, reply.remark, reply.ext, data)

    def _answer(
        self, peer: Peer, command: Command, code: int, remark: str | None, ext: bytes, body: bytes
    ) -> None:
        peer.asked -= 1
        if command.flag & 2 or peer.closed:
            return
        try:
            peer.wire.send_reply(command.opaque, code, remark, ext, body)
            peer.unwritten += len(body)
        except LocalProtocolError as error:
            peer.wire.send_reply(command.opaque, SYSTEM_ERROR, str(error), b"", b"")
        self.mark(peer)

    def refuse(self, peer: Peer) -> None:
        """Answer the requests of `peer` whose frames were given up: there is no memory for them now."""
        given_up = peer.wire.refused
        peer.wire.refused = []
        for command in given_up:
            if not command.flag & 1:
                self.refused += 1
                peer.asked += 1
                self._answer(peer, command, SYSTEM_BUSY, NO_ROOM, b"", b"")

    def finish(self, peer: Peer) -> None:
        """`peer` broke the protocol: end its connection when what it asked before is answered.

        It has `LINGER_S` to take the answers; then the connection is gone, whatever waits.
        """
        peer.ending = True
        self.mark(peer)
        self.loop.call_later(LINGER_S, peer.transport.abort)

    def mark(self, peer: Peer) -> None:
        """`peer` has something to send: one write at the end of the turn."""
        if not peer.dirty:
            peer.dirty = True
            self._dirty.append(peer)
            self._schedule()

    def _flush(self) -> None:
        dirty = self._dirty
        if not dirty:
            return
        self._dirty = []
        now = self.loop.time()
        for peer in dirty:
            peer.dirty = False
            peer.unwritten = 0
            out = peer.wire.data_to_send()
            if peer.closed:
                continue
            if out:
                peer.last_active = now
                self._write(peer, out, now)
            if peer.ending and peer.asked <= 0:
                peer.transport.write_eof()
                peer.closed = True
            if peer.parked and not peer.paused and not peer.crowded:
                self._unpark(peer)

    def _write(self, peer: Peer, out: list[bytes], now: float) -> None:
        transport = peer.transport
        waiting: int = transport.get_write_buffer_size()
        size = 0
        for part in out:
            size += len(part)
        if len(out) == 1:
            transport.write(out[0])
        elif size < JOIN_BELOW:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        watched = waiting or size >= JOIN_BELOW or peer.behind is not None
        if watched and note_unsent(self.limits.unsent, peer, waiting, size, now):
            self.loop.call_soon(self._free_unsent)  # uvloop writes at the end of this turn

    def _free_unsent(self) -> None:
        """More answers wait than may: the peers that have been behind longest lose their connections."""
        why = "it is behind with its answers, and all that wait are too many"
        for entry in make_room(self.limits.unsent):
            cut(entry.peer, why, self._noise)
