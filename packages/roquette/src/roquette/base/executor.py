"""The one door to worker threads: blocking calls run here, state stays on the loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextvars import copy_context
from functools import partial
from io import BytesIO
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from roquette.base.kernel_sync import SyncEnded, open_kernel_sync

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class WorkerThreads:
    """Few threads of one loop, fed by one queue.

    A synchronous send pays for one hand-over to a thread and back. By `run_in_executor` that took 108 µs of
    user CPU, through two futures and a condition variable; this way it takes 25.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, workers: int, *, name: str = "roquette-file"
    ) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        self._kernel = open_kernel_sync(loop) if name == "roquette-file" else None

    def sync(self, fd: int, ended: SyncEnded) -> bool:
        """See `sync_file`."""
        return self._kernel is not None and self._kernel.sync(fd, ended)

    def submit(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Run a call in one of the threads; the future resolves on the loop."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((future, call, args))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call, args = job
            result: Any = None
            error: Exception | None = None
            try:
                result = call(*args)
            except Exception as raised:  # noqa: BLE001 - the loop's side gets it
                error = raised
            try:
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: no caller waits any more
            del job, future, call, args, result, error  # a waiting thread keeps nothing alive

    def close(self) -> None:
        """Let the threads end when what was submitted is done, and wait for them."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout=5.0)


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return  # cancelled meanwhile
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


_threads: "WeakKeyDictionary[asyncio.AbstractEventLoop, WorkerThreads]" = WeakKeyDictionary()


def use_worker_threads(loop: asyncio.AbstractEventLoop, workers: int = 4) -> WorkerThreads:
    """Give a real loop threads for `submit`, to be closed with it; without, its own executor serves."""
    threads = _threads[loop] = WorkerThreads(loop, workers)
    return threads


def submit(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
    """Run one blocking call in a worker thread; the future resolves on the loop."""
    assert not kwargs
    loop = asyncio.get_running_loop()
    threads = _threads.get(loop)
    if threads is not None:
        return threads.submit(call, *args)
    return loop.run_in_executor(None, call, *args)


def sync_file(fd: int | None, ended: SyncEnded) -> bool:
    """Let the kernel bring a file's data to the device, off the event loop and without a thread.

    `ended` is called on the loop, with the error or None. False: that is not to be had here or now, a thread
    must do it (`submit`).
    """
    if fd is None:
        return False
    threads = _threads.get(asyncio.get_running_loop())
    return threads is not None and threads.sync(fd, ended)


async def run_blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one blocking call in a worker thread and wait for its value."""
    return await submit(call, *args, **kwargs)


async def join_slices(slices: Iterator[bytes]) -> bytes:
    """What an iterator gives, up to its end or nothing, each slice made in a worker thread. One that takes a millisecond keeps the
    interpreter from the loop for as long; between two of them the loop has its turn."""
    made = BytesIO()  # grows in place, and gives its bytes away without a copy
    while await run_blocking(lambda: made.write(next(slices, b""))):
        pass
    return made.getvalue()


def in_threads(call: Callable[..., Any], most: int, name: str) -> Callable[..., Awaitable[Any]]:
    """A function that may block, for a loop: each call in a thread, in the context it comes from, `most` at a time.

    Threads begin when they are needed and end with the function; a simulated loop runs the calls itself. What is returned to be
    awaited, as wrappers of coroutine functions do, is awaited on the loop.
    """
    from concurrent.futures import ThreadPoolExecutor  # loaded by who has such functions

    threads = ThreadPoolExecutor(most, name)

    def once(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except StopIteration as error:  # no future takes it
            raise RuntimeError(f"{name} raised StopIteration") from error

    async def run(*args: Any, **named: Any) -> Any:
        work = partial(copy_context().run, once, *args, **named)
        found = await asyncio.get_running_loop().run_in_executor(threads, work)
        return await found if isinstance(found, Awaitable) else found

    return run


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop that does not run yet: uvloop's where that is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_event_loop()


class _Call(Generic[T]):
    """A coroutine that a thread waits for, while another one's loop runs it.

    The loop's thread alone ever holds its task. Who drops the last reference to a task runs asyncio's callbacks of
    its end, and a Ctrl-C that came in one of these would be lost.
    """

    __slots__ = ("_ended", "_error", "_result", "_task", "_work", "over")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work: Coroutine[Any, Any, T] | None = work
        self._task: asyncio.Task[None] | None = None
        self._ended = threading.Lock()
        self._ended.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None
        self.over = False  # it has ended

    def begin(self) -> None:
        """On the loop: run it."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """On the loop: nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()
        if self._work is not None:
            self._work.close()  # it has not begun

    async def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = await work
        except asyncio.CancelledError:
            self._error = CancelledError()
        except BaseException as error:  # noqa: BLE001 - the one who waits gets it
            self._error = error
        finally:
            self._task = None
            self.over = True
            self._ended.release()

    def wait(self) -> T:
        """On the thread that waits: its value, or what it raised."""
        self._ended.acquire()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return cast(T, self._result)


class LoopThread:
    """An event loop in a thread of its own, for callers that have none; and `beside` threads for what it calls back."""

    def __init__(self, name: str, beside: int = 1) -> None:
        self._name = name
        self._workers = beside
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._beside: WorkerThreads | None = None

    @classmethod
    def running(cls, name: str, beside: int = 1) -> Self:
        """The loop that runs in this thread, for callers in others; whoever runs it ends it."""
        around = cls.__new__(cls)
        around._name, around._workers, around._beside = name, beside, None
        around._loop, around._thread = asyncio.get_running_loop(), threading.current_thread()
        return around

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self) -> None:
        """Begin to run the loop."""
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its value. Raises RuntimeError on the loop's own thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("called on the client's own thread, which would wait for itself")
        call = _Call(work)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.wait()
        finally:
            if not call.over:  # Ctrl-C: no caller waits any more
                self._loop.call_soon_threadsafe(call.cancel)

    def run(self, step: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for its value."""

        async def once() -> T:
            return step()

        return self.call(once())

    async def beside(self, call: Callable[..., T], *args: Any) -> T:
        """Run what may block, and may call back, in a thread for that, in the context it is called from."""
        if self._beside is None:
            self._beside = WorkerThreads(self._loop, self._workers, name=f"{self._name}-handlers")
        return await self._beside.submit(copy_context().run, call, *args)

    def stop(self) -> None:
        """End the loop and its threads."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop.close()
        if self._beside is not None:
            self._beside.close()


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Run a blocking call in a thread of its own, which a program waits for at its end."""
    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


def pause(milliseconds: int) -> None:
    """Hold up the calling thread, which must not be a loop's."""
    threading.Event().wait(milliseconds / 1000)
