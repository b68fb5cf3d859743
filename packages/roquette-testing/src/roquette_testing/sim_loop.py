"""An asyncio event loop in virtual time, with a network in memory: one seed decides everything.

No thread, no socket, no wall clock: time jumps to the next timer when nothing is ready. Unmodified asyncio
programs run on it. What breaks a replay is iteration over sets (of texts: the hash seed; of objects: their
addresses), `asyncio.wait`, the order in which a TaskGroup cancels, and clocks or random numbers that are
not passed in.
"""

import asyncio
import collections.abc
import contextlib
import contextvars
import hashlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar

from roquette.base.entropy import Entropy
from roquette_testing.memory_network import (
    Handle,
    MemoryNetwork,
    MemoryServer,
    MemoryTransport,
    NetworkLoop,
    Process,
    process_of,
)

# Throws an unexpected exception into one task of a simulated process, at one of its awaits.


# Where an exception cannot come from, and breaks a promise of asyncio's own if it is thrown there.
_SPARED: Final = ("asyncio/locks.py", "asyncio/queues.py", "asyncio/taskgroups.py")


class Unexpected(Exception):
    """Exception that is thrown: no code of ours raises or expects it."""


class Thrower:
    """Counts the awaits of every task, and throws at the one that was chosen.

    A task is known by host and name, or by its coroutine's name when it has none; all tasks of one name count together.

    Attributes:
        awaits: how often each task went on after an await.
        thrown: whether it has been thrown.
    """

    def __init__(self) -> None:
        self.awaits: dict[tuple[str, str], int] = {}
        self.thrown = False
        self._chosen: tuple[str, str] | None = None
        self._number = 0

    def choose(self, host: str, name: str, number: int) -> None:
        """Throw when that task goes on after its await with this number, counted from now on, from 1."""
        self._chosen = host, name
        self._number = self.awaits.get(self._chosen, 0) + number

    def watch(self, host: str, name: str, coro: Coroutine[Any, Any, Any]) -> "Watched":
        """The coroutine to run in place of `coro`."""
        return Watched(self, host, name, coro)

    def is_due(self, host: str, name: str, coro: Coroutine[Any, Any, Any]) -> bool:
        """A task goes on: is it to be thrown at? Asked once for each await."""
        task = host, name
        count = self.awaits[task] = self.awaits.get(task, 0) + 1
        if self.thrown or task != self._chosen or count < self._number or _spared(coro):
            return False
        self.thrown = True
        return True


class Watched(collections.abc.Coroutine[Any, Any, Any]):
    """A coroutine whose awaits are counted."""

    def __init__(
        self, thrower: Thrower, host: str, name: str, coro: Coroutine[Any, Any, Any]
    ) -> None:
        self._thrower = thrower
        self._host, self._name = host, name
        self._coro = coro
        self._begun = False

    def send(self, value: Any) -> Any:
        """Go on after an await."""
        if not self._begun:
            self._begun = True
        elif self._thrower.is_due(self._host, self._name, self._coro):
            return self._coro.throw(Unexpected(f"thrown into {self._name} of {self._host}"))
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        self._begun = True
        return self._coro.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._coro.__await__())


def _spared(coro: Any) -> bool:
    """Return True if what is awaited innermost is a part of asyncio that no exception comes from."""
    inner, code = coro, None
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is None:
            break
        code = frame.f_code
        inner = inner.cr_await
    return code is not None and code.co_filename.endswith(_SPARED)


T = TypeVar("T")

EXECUTOR_LATENCY_S = (0.0001, 0.005)
RESOLUTION_S = 1e-9
SOON = -1.0  # a time that no timer has
# Cancelled timers are taken out of the heap where they are so many, and more than half of all.
MANY_TIMERS = 100
LONGEST_STEP_S = 24 * 3600.0


class _Rate:
    """A clock that runs fast or slow: what it shows for virtual seconds, and back."""

    __slots__ = ("began", "rate", "shown")

    def __init__(self, began: float, shown: float, rate: float) -> None:
        self.began = began
        self.shown = shown
        self.rate = rate

    def shows(self, now: float) -> float:
        return self.shown + (now - self.began) * self.rate

    def reached(self, shown: float) -> float:
        return self.began + (shown - self.shown) / self.rate


class SimLoop(asyncio.BaseEventLoop, NetworkLoop):
    """The loop. `now` is virtual seconds, `random` the seeded source of every delay and split.

    Nothing is waited for and nothing is slow here, so a turn (`_run_once`) and its handles are asyncio's without what is for that:
    half of what a simulation costs is timers.
    """

    _ready: deque[Handle]
    _scheduled: list[Handle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now = 0.0
        self.random = Entropy(seed, process_id=1).random
        self.network = MemoryNetwork(self)
        self.events = 0
        self.crashes: list[dict[str, Any]] = []
        self.thrower: Thrower | None = None  # of exceptions into the tasks of processes
        self.names: dict[str, list[str]] = {}  # addresses by name, for those that ask for them
        self._digest = hashlib.sha256()
        self._frozen: str | None = None
        self._dead: list[Process] = []
        self._rates: dict[str, _Rate] = {}
        self._disks: dict[str, float] = {}
        self.set_exception_handler(self._remember_crash)

    def _remember_crash(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: kept for the test to assert on, and shown."""
        if self._frozen is None:
            self.crashes.append(context)
            self.default_exception_handler(context)

    def time(self) -> float:
        """Seconds, by the clock of the host whose code asks."""
        if not self._rates:
            return self.now
        process = process_of()
        rate = self._rates.get(process.host) if process is not None else None
        return self.now if rate is None else rate.shows(self.now)

    def _run_once(self) -> None:
        """Go on to the next timer where nothing is ready, then call what is ready now."""
        timers, ready = self._scheduled, self._ready
        if len(timers) > MANY_TIMERS and self._timer_cancelled_count / len(timers) > 0.5:
            for handle in timers:
                handle.is_timed = not handle.is_cancelled
            timers = self._scheduled = [handle for handle in timers if handle.is_timed]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].is_cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers).is_timed = False
        if not ready and not self._stopping:
            if not timers:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            # Nothing is ready, so no time passes unseen: the clock jumps.
            self.now += min(max(timers[0] - self.now, 0.0), LONGEST_STEP_S)
        due = self.now + RESOLUTION_S
        while timers and timers[0] < due:
            handle = heappop(timers)
            handle.is_timed = False
            ready.append(handle)
        # Only what is ready now: what callbacks add waits for the next turn, as with asyncio.
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback, process = handle.callback, handle.process
            if callback is None or (process is not None and not process.alive):
                continue
            if process is not None and process.stopped_until:
                # A stopped process loses nothing: it catches up when it goes on.
                process.waiting.append(handle)
                continue
            try:
                handle.context.run(callback, *handle.args)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as asyncio does
                what = {"message": f"Exception in {handle!r}", "exception": error}
                self.call_exception_handler(what)

    def _handle(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Any
    ) -> Handle:
        handle = Handle(when)
        handle.args, handle.callback, handle.loop = args, callback, self
        handle.process = process_of(context)
        handle.context = contextvars.copy_context() if context is None else context
        handle.is_cancelled = handle.is_timed = False
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = self._handle(SOON, callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        if not self._rates:
            return self.call_when(self.now + delay, callback, *args, context=context)
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        if self._rates:
            asks = process_of()
            rate = self._rates.get(asks.host) if asks is not None else None
            when = when if rate is None else rate.reached(when)
        return self.call_when(when, callback, *args, context=context)

    def call_when(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Handle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = self._handle(when, callback, args, context)
        handle.is_timed = True
        heappush(self._scheduled, handle)
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        context: contextvars.Context | None = options.get("context")
        process = process_of(context)
        if process is not None and self.thrower is not None:
            coro = self.thrower.watch(process.host, options.get("name") or coro.__qualname__, coro)
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(process.tasks.pop)
        return task

    def trace(self, *what: object) -> None:
        """Whatever is traced is part of the fingerprint of the run."""
        self.events += 1
        self._digest.update(f"{self.now:.9f} {what}\n".encode())

    def fingerprint(self) -> str:
        """A hash of everything that was traced: connections, every chunk of bytes, file calls."""
        return self._frozen or self._digest.hexdigest()[:16]

    def stall(self, seconds: float) -> None:
        """The running callback takes so long: time passes, nothing else happens."""
        self.now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """The call runs whole, on the loop, and its result arrives after a drawn latency.

        The call of a process that died before does not happen.
        """
        future: asyncio.Future[T] = self.create_future()
        process = process_of()
        slow = self._disks.get(process.host, 0.0) if process is not None else 0.0
        before = self.random.uniform(0.0, slow) if slow else 0.0

        def run() -> None:
            if future.cancelled():
                return
            self.trace("executor", getattr(func, "__qualname__", type(func).__name__))
            try:
                settle, what = future.set_result, func(*args)
            except Exception as error:  # noqa: BLE001 - the caller's, as a thread pool gives it
                settle, what = future.set_exception, error  # type: ignore[assignment]
            if slow:
                self.call_later(slow - before, lambda: future.done() or settle(what))
            else:
                settle(what)

        self.call_later(before + self.random.uniform(*EXECUTOR_LATENCY_S), run)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (address, port)) for address in self.names.get(host, [host])]

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> MemoryServer:
        return self.network.listen(protocol_factory, host, port or 0)

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        **options: Any,
    ) -> tuple[MemoryTransport, Any]:
        local = options.get("local_addr")
        return await self.network.connect(
            protocol_factory, local[0] if local else None, (host, port)
        )

    # Processes

    def new_process(self, host: str) -> Process:
        """A process on `host`; run code in it with `run_in`."""
        return Process(host)

    async def run_in(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as part of `process`; whatever it starts belongs to that process."""
        task: asyncio.Task[T] = self.create_task(work, context=process.context.copy())
        return await task

    def kill(self, process: Process) -> None:
        """SIGKILL: not one more instruction of `process` runs; the machine resets its connections."""
        if process.alive:
            process.alive = False
            self.trace("kill", process.host)
            self.network.kill(process)
            self._dead.append(process)

    def pause(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long: until then nothing of `process` runs, and its clock goes on.

        The other ends of its connections see nothing; what arrives waits. On waking all that waited runs, timers in
        their order or behind what the sockets hold.
        """
        process.stopped_until = max(process.stopped_until, self.now + seconds)
        self.trace("pause", process.host, seconds)
        self.call_when(process.stopped_until, self._go_on, process, context=contextvars.Context())

    def _go_on(self, process: Process) -> None:
        if not process.alive or not 0 < process.stopped_until < self.now + RESOLUTION_S:
            return
        process.stopped_until = 0.0
        self.trace("goes on", process.host)
        waiting, process.waiting = process.waiting, []
        if self.random.random() < 0.5:
            waiting.sort(key=lambda handle: handle != SOON)
        self._ready.extend(waiting)

    def set_rate(self, host: str, rate: float) -> None:
        """From now on a host's clocks and timers run `rate` times as fast as they should."""
        old = self._rates.get(host)
        shown = self.now if old is None else old.shows(self.now)
        self._rates[host] = _Rate(self.now, shown, rate)
        self.trace("rate", host, rate)

    def slow_disk(self, host: str, seconds: float) -> None:
        """From now on each call in a thread of a host takes so long; its effect comes at some time in between."""
        self._disks[host] = seconds
        self.trace("disk", host, seconds)

    async def unwind(self) -> None:
        """End what the run left behind: close the dead's coroutines, cancel the living's tasks."""
        self._frozen = self.fingerprint()
        buried: dict[asyncio.Task[Any], None] = {}
        for process in self._dead:
            context = process.context.copy()
            for task in process.tasks:
                buried[task] = None
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError, ValueError):  # it awaits in a `finally`
                    context.run(task.get_coro().close)
        here = asyncio.current_task()
        left = [task for task in asyncio.all_tasks(self) if task is not here and task not in buried]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def run(main: Callable[[SimLoop], Coroutine[Any, Any, Any]], seed: int = 1) -> SimLoop:
    """Run `main(loop)` to its end in virtual time and return the loop, with its fingerprint.

    Raises:
        AssertionError: a callback crashed on the way.
    """
    loop = SimLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        try:
            loop.run_until_complete(main(loop))
        finally:
            loop.run_until_complete(loop.unwind())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    if loop.crashes:
        raise AssertionError(loop.crashes)
    return loop
