"""The simulated loop and network: virtual time, faults, death of a process, replay."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from roquette.base.clock import LoopClock
from roquette.base.executor import run_blocking
from roquette_testing.embedded import ManualClock
from roquette_testing.sim_loop import SimLoop, run

SERVER = "10.0.0.1"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def serve(loop: SimLoop, port: int = 9000) -> Any:
    process = loop.new_process(SERVER)
    await loop.run_in(process, asyncio.start_server(echo, "0.0.0.0", port))
    return process


def test_time_is_virtual() -> None:
    async def main(loop: SimLoop) -> None:
        clock = LoopClock(loop, 1_000)
        await asyncio.sleep(3600)
        assert loop.time() == pytest.approx(3600)
        assert clock.now_ms() == 3_601_000

    run(main)


def test_a_timer_says_its_time_and_is_not_called_once_it_is_cancelled() -> None:
    async def main(loop: SimLoop) -> None:
        called: list[int] = []
        timers = [loop.call_at(5 + n, called.append, n) for n in range(300)]
        assert timers[2].when() == 7.0
        for timer in timers[3:]:
            timer.cancel()
        assert timers[3].cancelled() and not timers[2].cancelled()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(loop._scheduled) == 3, "the cancelled ones are kept"
        await asyncio.sleep(1000)
        assert called == [0, 1, 2]

    run(main)


def test_what_a_callback_raises_is_told_and_stops_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        def fails(error: BaseException) -> None:
            raise error

        loop.call_soon(fails, ValueError("first"))
        loop.call_soon(fails, asyncio.CancelledError("second"))
        await asyncio.sleep(1)
        assert [str(each["exception"]) for each in loop.crashes] == ["first", "second"]
        loop.crashes.clear()

    run(main)


def test_bytes_arrive_in_order_whatever_the_splits() -> None:
    async def main(loop: SimLoop) -> None:
        await serve(loop)
        reader, writer = await asyncio.open_connection(SERVER, 9000)
        sent = b"".join(b"%06d" % i for i in range(5_000))

        for i in range(0, len(sent), 100):
            writer.writelines([sent[i : i + 50], sent[i + 50 : i + 100]])
            await writer.drain()

        assert await reader.readexactly(len(sent)) == sent

    run(main, 3)


def test_a_partition_delays_and_loses_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        await serve(loop)
        reader, writer = await asyncio.open_connection(SERVER, 9000)
        loop.network.partition(SERVER, "10.0.0.254")
        loop.call_later(5, loop.network.heal)

        writer.write(b"one")
        writer.write(b"two")

        assert await reader.readexactly(6) == b"onetwo"
        assert 5 <= loop.time() < 6

    run(main)


def test_connecting_into_a_partition_hangs_until_it_heals() -> None:
    async def main(loop: SimLoop) -> None:
        await serve(loop)
        loop.network.isolate(SERVER)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.open_connection(SERVER, 9000)
        loop.call_later(5, loop.network.heal)

        await asyncio.open_connection(SERVER, 9000)

        assert 8 <= loop.time() < 9

    run(main)


def test_nobody_listens() -> None:
    async def main(loop: SimLoop) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(SERVER, 1)

    run(main)


def test_a_port_can_be_taken_once() -> None:
    async def main(loop: SimLoop) -> None:
        server = await asyncio.start_server(echo, SERVER, 9000)
        with pytest.raises(OSError, match="address in use"):
            await asyncio.start_server(echo, SERVER, 9000)
        server.close()
        await asyncio.start_server(echo, SERVER, 9000)

    run(main)


def test_reset_breaks_connections_and_keeps_servers() -> None:
    async def main(loop: SimLoop) -> None:
        await serve(loop)
        reader, _ = await asyncio.open_connection(SERVER, 9000)
        loop.network.reset(SERVER)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

        await asyncio.open_connection(SERVER, 9000)

    run(main)


def test_a_killed_process_runs_not_one_instruction_more() -> None:
    async def main(loop: SimLoop) -> None:
        done: list[str] = []

        async def work() -> None:
            loop.call_later(2, done.append, "timer")
            try:
                await run_blocking(done.append, "file call")
                await asyncio.sleep(10)
                done.append("task")
            finally:
                done.append("finally")

        async def start() -> None:
            holder.append(loop.create_task(work()))

        holder: list[Any] = []
        process = loop.new_process("10.0.0.9")
        await loop.run_in(process, start())
        await asyncio.sleep(1)
        assert done == ["file call"]
        loop.kill(process)
        await asyncio.sleep(60)

        assert done == ["file call"]

    run(main)


def test_the_peers_of_a_killed_process_are_reset_and_its_port_is_free() -> None:
    async def main(loop: SimLoop) -> None:
        process = await serve(loop)
        reader, _ = await asyncio.open_connection(SERVER, 9000)
        loop.kill(process)

        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(SERVER, 9000)
        await serve(loop)
        await asyncio.open_connection(SERVER, 9000)

    run(main)


def test_a_kill_behind_a_partition_is_noticed_when_it_heals() -> None:
    async def main(loop: SimLoop) -> None:
        process = await serve(loop)
        reader, _ = await asyncio.open_connection(SERVER, 9000)
        loop.network.isolate(SERVER)
        loop.kill(process)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await reader.read(1)
        loop.network.heal()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

    run(main)


def test_waiting_for_nothing_is_an_error() -> None:
    async def main(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        run(main)


def test_a_crashed_callback_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(main)


async def busy(loop: SimLoop) -> None:
    """A life with everything in it: used for replay."""
    process = await serve(loop)

    async def chat(number: int) -> None:
        for _ in range(20):
            try:
                reader, writer = await asyncio.open_connection(SERVER, 9000)
                for _ in range(10):
                    writer.write(b"%d" % number * 30)
                    await reader.read(100)
                    await run_blocking(str, number)
                    await asyncio.sleep(loop.random.random())
                writer.close()
            except OSError:
                await asyncio.sleep(0.5)

    chats = [loop.create_task(chat(i), name=f"chat-{i}") for i in range(10)]
    await asyncio.sleep(5)
    loop.network.isolate(SERVER)
    await asyncio.sleep(2)
    loop.network.heal()
    await asyncio.sleep(2)
    loop.network.reset(SERVER)
    await asyncio.sleep(2)
    loop.kill(process)
    await asyncio.sleep(1)
    await serve(loop)
    await asyncio.gather(*chats)


def test_a_seed_decides_everything() -> None:
    first, again, other = run(busy, 1), run(busy, 1), run(busy, 2)

    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert first.events > 1_000


@pytest.mark.simulation
def test_the_hash_seed_decides_nothing() -> None:
    code = (
        "from tests.testing.test_sim_loop import busy\n"
        "from roquette_testing.sim_loop import run\n"
        "print(run(busy, 7).fingerprint())"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert seen[0] == seen[1] != ""


def test_manual_clock_moves_when_told() -> None:
    clock = ManualClock(100)
    assert clock.advance(5) == 105
    assert clock.now_ms() == 105


def test_a_paused_process_runs_nothing_and_then_all_of_it() -> None:
    async def main(loop: SimLoop) -> None:
        done: list[tuple[str, float]] = []

        def note(what: str) -> None:
            done.append((what, loop.now))

        async def work() -> None:
            await asyncio.start_server(echo, "0.0.0.0", 9000)
            loop.call_later(2, note, "timer")
            loop.call_later(3, note, "later timer")
            cancelled = loop.call_later(3.5, note, "cancelled by one that waited too")
            loop.call_later(2.5, cancelled.cancel)
            loop.call_later(1, lambda: loop.create_task(blocking()))

        async def blocking() -> None:
            await run_blocking(note, "file call")

        process = loop.new_process(SERVER)
        await loop.run_in(process, work())
        reader, writer = await asyncio.open_connection(SERVER, 9000)
        loop.pause(process, 10)
        loop.pause(process, 4)  # the longer one counts
        writer.write(b"before")
        await asyncio.sleep(5)
        second, other = await asyncio.open_connection(SERVER, 9000)  # the system accepts
        other.write(b"after")
        await asyncio.sleep(4)
        assert done == []

        assert await reader.readexactly(6) == b"before"
        assert await second.readexactly(5) == b"after"
        assert 10 <= loop.now < 10.1
        await asyncio.sleep(1)
        assert sorted(what for what, _ in done) == ["file call", "later timer", "timer"]
        assert all(10 <= at < 10.1 for _, at in done)

    for seed in range(1, 5):
        run(main, seed)


def test_a_paused_process_can_be_killed() -> None:
    async def main(loop: SimLoop) -> None:
        process = await serve(loop)
        reader, writer = await asyncio.open_connection(SERVER, 9000)
        loop.pause(process, 3)
        writer.write(b"one")
        await asyncio.sleep(1)
        loop.kill(process)
        with pytest.raises(ConnectionResetError):
            await reader.read(3)
        await asyncio.sleep(5)

    run(main)


def test_one_way_is_cut_and_the_other_is_not() -> None:
    async def main(loop: SimLoop) -> None:
        got: list[bytes] = []

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                got.append(data)
                writer.write(data)

        await loop.run_in(loop.new_process(SERVER), asyncio.start_server(take, "0.0.0.0", 9000))
        reader, writer = await asyncio.open_connection(SERVER, 9000)
        loop.network.cut_way(SERVER, "10.0.0.254")
        writer.write(b"one")
        await asyncio.sleep(1)
        assert got == [b"one"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.open_connection(SERVER, 9000)  # the answer to a SYN is lost too
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await reader.read(3)

        loop.network.heal("10.0.0.254", SERVER)
        assert await reader.readexactly(3) == b"one"

        loop.network.cut_way("10.0.0.254", SERVER)
        writer.write(b"two")
        await asyncio.sleep(5)
        assert b"".join(got) == b"one"
        loop.network.heal(SERVER)
        assert await reader.readexactly(3) == b"two"

    run(main)


def test_clocks_and_timers_run_at_the_rate_of_their_host() -> None:
    async def main(loop: SimLoop) -> None:
        seen: list[float] = []

        async def work() -> None:
            clock = LoopClock(loop, 0)
            began = clock.steady_ms()
            await asyncio.sleep(100)
            assert 99_999 <= clock.steady_ms() - began <= 100_001
            seen.append(loop.now)

        loop.set_rate(SERVER, 1.01)
        await loop.run_in(loop.new_process(SERVER), work())
        loop.set_rate(SERVER, 0.99)
        await loop.run_in(loop.new_process(SERVER), work())
        await asyncio.sleep(100)

        assert seen == [pytest.approx(100 / 1.01), pytest.approx(100 / 1.01 + 100 / 0.99)]
        assert loop.now == pytest.approx(seen[1] + 100)

    run(main)


def test_a_slow_disk_is_slow() -> None:
    async def main(loop: SimLoop) -> None:
        done: list[float] = []

        async def work() -> None:
            await run_blocking(lambda: done.append(loop.now))
            with pytest.raises(OSError, match="disk"):
                await run_blocking(fail)

        def fail() -> None:
            raise OSError("disk")

        loop.slow_disk(SERVER, 2.0)
        await loop.run_in(loop.new_process(SERVER), work())
        assert 4.0 < loop.now < 4.1
        assert 0 < done[0] < 2.1
        loop.slow_disk(SERVER, 0)
        await loop.run_in(loop.new_process(SERVER), work())
        assert loop.now < 4.2

    run(main)
