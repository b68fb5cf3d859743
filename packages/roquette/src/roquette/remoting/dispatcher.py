"""Command -> row -> lane -> processor -> outcome, drained once per loop turn.

All requests that arrived in one turn of the event loop are processed together, then `end_turn` runs once
(the broker writes its log and wakes held pulls there), then every connection gets one write. No task per
request: a processor is a plain function. HOT: compiled by mypyc in the fast build.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from roquette.base.clock import Clock
from roquette.base.descriptors import SHORTAGE, shortage_words
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.errors import LocalProtocolError, Refused
from roquette.remoting.account import JOIN_BELOW, PeerLimits, cut, make_room, note_unsent
from roquette.remoting.request import (
    TURN,
    Held,
    Later,
    Peer,
    Reply,
    RequestContext,
    Row,
    Silent,
    Task,
)
from roquette.remoting.running import LargeAnswers, Running
from roquette.wire.codes import ResponseCode, not_supported
from roquette.wire.command import Command
from roquette.wire.header_codec import NOT_FAST, BadHeader

# Functions that a server adds to its dispatcher. HOT: asked with every request.


def _nothing() -> None:
    return None


class Hooks:
    """Functions that a server runs around its requests.

    Args:
        end_turn: runs after the requests of a turn and before anything is written.
        later: keeps a reply that waits for the disk; `Dispatcher.answer` brings it back.
        guard: asked with each request and its decoded header before it is processed; raises `Refused`.
        refused: hears who asked what when a request is refused because too many others wait.
    """

    __slots__ = ("end_turn", "guard", "later", "refused")

    def __init__(
        self,
        end_turn: Callable[[], None] = _nothing,
        later: Callable[[RequestContext, Later], None] | None = None,
        guard: Callable[[RequestContext, Any], None] | None = None,
        refused: Callable[[Peer, int], None] | None = None,
    ) -> None:
        self.refused: Callable[[Peer, int], None] | None = refused
        self.end_turn: Callable[[], None] = end_turn
        self.guard: Callable[[RequestContext, Any], None] | None = guard
        self.later: Callable[[RequestContext, Later], None] | None = later


# Limits of each class of work that waits, of each peer's share, and the order of service. HOT.


TURN_MS: Final = (
    20  # after so long a turn ends, each lane's first requests served: the loop has other work, too
)
LARGE: Final = 1 << 16  # bytes of a body whose request may take milliseconds
OF_TURN: Final = 64  # requests of one peer that are served in a turn in which others are, too
LITTLE: Final = 16  # requests that wait: who has no more gets in where others have had their share


class LaneLimits:
    """Bounds of one class of work: `capacity` requests wait at most, each `wait_ms` at most (0: no limit).

    Attributes:
        budget: what a turn serves. free: while so few wait nobody is asked for his share.
    """

    __slots__ = ("budget", "capacity", "free", "name", "wait_ms")

    def __init__(self, name: str, capacity: int, wait_ms: int = 0, budget: int = 512) -> None:
        self.name: str = name
        self.capacity: int = capacity
        self.wait_ms: int = wait_ms
        self.budget: int = budget
        self.free: int = min(budget, capacity)


class WaitingRequests:
    """Those of one class of work: who gets in, and in which order they are served."""

    __slots__ = ("jobs", "limits", "of_peer", "pushed")

    def __init__(self, limits: LaneLimits) -> None:
        self.jobs: list[RequestContext] = []
        self.limits: LaneLimits = limits
        self.pushed: bool = False  # a peer may have more here than its share of a turn
        self.of_peer: dict[int, int] | None = None  # counted when somebody wants to know

    def has_room(self, peer: Peer) -> bool:
        """Return True when a peer may have one more request here, where more wait already than a turn serves.

        Nobody takes what is everybody's: each has a share, and room is kept for who has little.
        """
        of_peer = self.of_peer
        if of_peer is None:
            of_peer = self.of_peer = {}
            for job in self.jobs:
                of_peer[job.peer.id] = of_peer.get(job.peer.id, 0) + 1
        size: int = len(self.jobs)
        capacity: int = self.limits.capacity
        own: int = of_peer.get(peer.id, 0)
        if own < min(LITTLE, capacity // 64):
            room = size < 2 * capacity
        else:
            room = size < capacity and own < capacity // (len(of_peer) + (not own))
        if room:
            of_peer[peer.id] = own + 1
        return room

    def take(self) -> list[RequestContext]:
        """Those to be served now: the first of each peer, the second of each, and so on, as many as a turn serves.

        Of one peer there are `OF_TURN` at most while others ask, too: what one brings at once delays nobody for long.
        """
        jobs: list[RequestContext] = self.jobs
        budget: int = self.limits.budget
        self.of_peer = None
        if len(jobs) <= budget and not self.pushed:
            self.jobs = []
            return jobs
        places: list[int] = []
        counted: dict[int, int] = {}
        for job in jobs:
            place = counted.get(job.peer.id, 0)
            counted[job.peer.id] = place + 1
            places.append(place)
        if len(counted) == 1:
            self.jobs = jobs[budget:]
            return jobs[:budget]
        last = min(sorted(places)[min(budget, len(places)) - 1], OF_TURN)
        left: int = 0  # of those at the last place
        if last < OF_TURN:
            left = budget - sum([place < last for place in places])
        now: list[RequestContext] = []
        later: list[RequestContext] = []
        for job, place in zip(jobs, places):
            if place < last:
                now.append(job)
            elif place == last and left > 0:
                left -= 1
                now.append(job)
            else:
                later.append(job)
        self.jobs = later
        self.pushed = bool(later)
        return now


log = logging.getLogger("roquette.remoting")

SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
SYSTEM_BUSY: Final = int(ResponseCode.SYSTEM_BUSY)
NO_ROOM: Final = (
    "[OVERLOAD]no memory for this request now: too many are under way; send it again later"
)
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
FAILED: Final = "the request failed inside the server, whose log says why"
LINGER_S: Final = 10.0
BACKLOG: Final = 1 << 20  # bytes of answers a peer may have unwritten: its further requests wait


class Dispatcher:
    """Runs the processors of one server (or of a client, for requests its servers send).

    Args:
        rows: what is served.
        lanes: bounds, indexed by `Row.lane`.
    """

    def __init__(
        self,
        rows: list[Row],
        lanes: list[LaneLimits],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        tasks: Tasks,
        hooks: Hooks | None = None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.unsupported: int = 0
        self.crashed: int = 0  # requests that failed by a defect of ours
        self.refused: int = 0
        self._rows: dict[int, Row] = {}
        for served in rows:
            assert served.code not in self._rows, f"two rows for code {served.code}"
            self._rows[served.code] = served
        self._last_row: Row | None = None  # of the request before
        self._lanes: list[WaitingRequests] = [WaitingRequests(limits) for limits in lanes]
        self._clock: Clock = clock
        self._tasks: Tasks = tasks
        self._hooks: Hooks = Hooks() if hooks is None else hooks
        self._guard: Callable[[RequestContext, Any], None] | None = self._hooks.guard
        self._end_turn: Callable[[], object] = self._hooks.end_turn
        self._take_turn: Callable[[], None] = self._turn
        self.running: Running = Running()
        self._large: LargeAnswers = LargeAnswers()
        self.turn_ms: int = TURN_MS
        self.limits: PeerLimits = PeerLimits()
        self._scheduled: bool = False
        self._arrived_ms: int = -1  # of what waits for the next turn; -1: nothing has come
        self._arrived_s: float = 0.0
        self._pushing: dict[int, Peer] = {}  # which are not read for what they have in the lanes
        self._more: bool = False  # requests were submitted, perhaps in a turn
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
        if self._arrived_ms < 0:  # what comes for one turn comes at one time
            self._arrived_ms = self._clock.steady_ms()
            self._arrived_s = self.loop.time()
        steady_ms = self._arrived_ms
        peer.last_active = self._arrived_s
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
            row = self._last_row
            if row is None or row.code != command.code:
                row = self._last_row = rows.get(command.code)
            if row is None:
                self.unsupported += 1
                self._noise.warning(
                    "code", "request code is not served code=%d peer=%s", command.code, peer.remote
                )
                self._answer(
                    peer,
                    command,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    not_supported(command.code),
                    b"",
                    b"",
                )
                continue
            lane = self._lanes[row.lane]
            job = RequestContext(peer, command, row, steady_ms)
            if len(lane.jobs) < lane.limits.free or self._enters(lane, job):
                lane.jobs.append(job)
        if len(commands) > OF_TURN:
            self._pushes(peer)
        self._schedule()

    def _pushes(self, peer: Peer) -> None:
        """A peer has brought more than its share of a turn: it is not read before that is served."""
        for lane in self._lanes:
            lane.pushed = True
        self._pushing[peer.id] = peer
        peer.stop_reading(TURN)

    def _read_on(self) -> None:
        left = {job.peer.id for lane in self._lanes for job in lane.jobs}
        for number, peer in list(self._pushing.items()):
            if number not in left:
                del self._pushing[number]
                peer.read_on(TURN)

    def _enters(self, lane: WaitingRequests, job: RequestContext) -> bool:
        """Return True when a request gets into a lane where many wait already; else answer it.

        There who asks is proven first: who may not ask takes no place.
        """
        if self._guard is not None and not job.admitted and not self._admits(job):
            return False
        if lane.has_room(job.peer):
            return True
        self._busy(job.peer, job.command, OVERLOAD)
        return False

    def _busy(self, peer: Peer, command: Command, remark: str) -> None:
        """Too many others wait."""
        self.refused += 1
        if self._hooks.refused is not None:
            self._hooks.refused(peer, command.code)
        self._answer(peer, command, SYSTEM_BUSY, remark, b"", b"")

    def _admits(self, job: RequestContext) -> bool:
        try:
            self._admit(job)
        except Refused as refusal:
            self._answer(job.peer, job.command, refusal.code, refusal.remark, refusal.ext, b"")
            return False
        except BadHeader as error:
            self._answer(job.peer, job.command, SYSTEM_ERROR, str(error), b"", b"")
            return False
        except Exception as error:  # noqa: BLE001 - a defect of one request ends no server
            self.answer(job, self._failed(job, error))
            return False
        return True

    def submit(
        self, peer: Peer, command: Command, header: Any, account: str | None
    ) -> RequestContext | None:
        """Take in a request that came over another protocol; its answer goes to `peer.wire`.

        Args:
            header: of the row's kind, or None where that has none. account: who asks, as far as it is proven.

        Returns:
            None: it is answered already, with a refusal.
        """
        row = self._rows.get(command.code)
        peer.asked += 1
        if row is None:
            text = not_supported(command.code)
            self._answer(peer, command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text, b"", b"")
            return None
        lane = self._lanes[row.lane]
        job = RequestContext(peer, command, row, self._clock.steady_ms())
        job.header = header
        job.account = account
        if len(lane.jobs) >= lane.limits.free and not self._enters(lane, job):
            return None
        lane.jobs.append(job)
        self._more = True
        self._schedule()
        return job

    def cancel(self, job: RequestContext) -> None:
        """Nobody wants the answer to `job`: it is not run, or not again, where it has not been yet; `hold.drop()`
        takes it out of its table, or back what it has done for that answer alone."""
        if not job.cancelled:
            job.cancelled = True
            job.peer.asked -= 1
            job.command.body = b""
            self.limits.account.release(job)
            hold = job.hold
            if hold is not None:
                job.hold = None
                hold.drop()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._take_turn)

    def _turn(self) -> None:
        """Everything that arrived since the last turn: process, finish the turn, write."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        more = self._more = False
        self._arrived_ms = -1
        account = self.limits.account
        try:
            busy: bool = self.running.full
            for lane in self._lanes:
                if lane.jobs:
                    jobs = lane.take()
                    if lane.jobs:
                        more = True
                        # They outlive this turn: from here on their bytes count for their peers.
                        for job in lane.jobs:
                            if not job.kept:
                                account.keep(job)
                    wait_ms: int = lane.limits.wait_ms
                    done: i64 = 0
                    for job in jobs:
                        dear = done & 7 == 7 or (done > 0 and len(job.command.body) > LARGE)
                        if dear and self._clock.steady_ms() - steady_ms > self.turn_ms:
                            self._leave(lane, jobs[done:])
                            more = True
                            break
                        done += 1
                        peer = job.peer
                        if job.kept:
                            account.release(job)
                        if job.cancelled:
                            continue
                        # One peer's answers or tasks are too many: its requests wait, and delay no other's.
                        if peer.paused or peer.crowded or peer.unwritten > BACKLOG:
                            if not peer.closed:
                                peer.parked.append(job)
                                account.keep(job)
                        elif wait_ms and steady_ms - job.arrived_ms >= wait_ms:
                            self._too_late(job, steady_ms, len(lane.jobs))
                        elif busy:
                            self._busy(peer, job.command, OVERLOAD)
                        else:
                            job.now_ms = now_ms
                            job.steady_ms = steady_ms
                            self._run(job)
            self._end_turn()  # before a write: it does what the answers of this turn promise
        finally:
            self._scheduled = False  # only now: answers of this turn need no turn of their own
        if self._pushing:
            self._read_on()
        self._flush()
        if more or self._more:
            self._schedule()

    def _leave(self, lane: WaitingRequests, rest: list[RequestContext]) -> None:
        """The turn was long enough: these come first in the next one of their lane."""
        for job in rest:
            if not job.kept:
                self.limits.account.keep(job)
        lane.jobs = rest + lane.jobs
        lane.of_peer = None

    def pause(self, peer: Peer) -> None:
        """`peer` does not read its answers: its requests wait, so that its backlog stays bounded."""
        peer.paused = True

    def resume(self, peer: Peer) -> None:
        """`peer` takes answers again: its parked requests run."""
        peer.paused = False
        if not peer.crowded:
            self._unpark(peer)

    def _unpark(self, peer: Peer) -> None:
        if peer.closed:
            self.drop_parked(peer)
            return
        parked = peer.parked
        if parked:
            peer.parked = []
            for job in parked:
                self._lanes[job.row.lane].jobs.append(job)
            self._schedule()

    def drop_parked(self, peer: Peer) -> None:
        """`peer` is gone: what waited until it reads goes, too."""
        for job in peer.parked:
            self.limits.account.release(job)
        peer.parked.clear()

    def _too_late(self, job: RequestContext, steady_ms: int, size: int) -> None:
        """Apache's BrokerFastFailure: what waited too long is refused, so that the client turns elsewhere."""
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
            f"{steady_ms - job.arrived_ms}ms, size of queue: {size}"
        )
        self._busy(job.peer, job.command, remark)

    def _admit(self, job: RequestContext) -> None:
        """Read a request's header and have the guard look at it, if neither has been done. Raises what the guard raises, BadHeader."""
        if job.header is None:
            decode = job.row.decode
            if job.command.fields is not None and job.row.sends:
                job.header = job.command.fields
            elif decode is not None:
                try:
                    job.header = decode(job.command.ext)
                except NOT_FAST:
                    coerce = job.row.coerce
                    assert coerce is not None
                    job.header = coerce(job.command.ext)
        if self._guard is not None and not job.admitted:
            self._guard(job, job.header)
            job.admitted = True

    def _run(self, job: RequestContext) -> None:
        command = job.command
        try:
            self._admit(job)
            outcome = job.row.process(job, job.header, command.body)
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
            assert self._hooks.later is not None
            self.limits.account.promise(job, outcome)
            self._hooks.later(job, outcome)
        elif isinstance(outcome, Held):
            outcome.hold.job = job  # who holds it runs it again by `rerun`
            job.hold = outcome.hold
            self.limits.account.hold(job)
        elif isinstance(outcome, Task):
            self.running.begin(job.peer)
            self.limits.account.work(job)
            self._tasks.start(f"request-{command.code}", self._finish(job, outcome))
        else:
            assert isinstance(outcome, Silent), outcome
            job.peer.asked -= 1

    async def _finish(self, job: RequestContext, task: Task) -> None:
        try:
            reply = await (self._in_turn(job, task) if task.large else task.work)
        except Refused as refusal:
            reply = Reply(refusal.ext, None, refusal.code, refusal.remark)
        except Exception as error:  # noqa: BLE001 - see _run
            reply = self._failed(job, error)
        finally:
            self.limits.account.release(job)
            if self.running.end(job.peer) and not job.peer.paused:
                self._unpark(job.peer)
        if reply is not None:
            self.answer(job, reply)
        else:
            job.peer.asked -= 1

    async def _in_turn(self, job: RequestContext, task: Task) -> Reply | None:
        """The answer, made when it is its turn; None: nobody waits for it any more."""
        try:
            await self._large.enter(job.peer)
            try:
                return None if job.peer.closed else await task.work
            finally:
                self._large.leave()
        finally:
            task.work.close()  # which has perhaps not begun

    def _failed(self, job: RequestContext, error: Exception) -> Reply:
        """The answer after a shortage or a defect of ours; the log gets the error, the peer a sentence without Python's text."""
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            reason = shortage_words(error)
            self._noise.warning("short", "request not served: %s", reason)
            return Reply(b"", None, SYSTEM_BUSY, f"[OVERLOAD]the server is {reason}. Try again")
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
        self.limits.account.release(job)
        job.hold = None  # else the two keep one another until the collector comes
        if not job.peer.closed and not job.cancelled:
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
        if job.kept:
            self.limits.account.release(job)
        if job.cancelled:
            return
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

    def refuse(self, peer: Peer, given_up: list[Command]) -> None:
        """Answer the requests of `peer` whose frames were given up: there is no memory for them now."""
        for command in given_up:
            if not command.flag & 1:
                peer.asked += 1
                self._busy(peer, command, NO_ROOM)

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
            # The peer broke the protocol (`finish`): it learns the answers to what it asked before.
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
