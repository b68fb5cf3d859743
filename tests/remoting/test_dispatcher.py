"""Requests on their way through rows and lanes to their outcomes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import pytest

from roquette.errors import Refused
from roquette.remoting.dispatcher import FAILED, LARGE, OF_TURN, LaneLimits, WaitingRequests
from roquette.remoting.request import TURN, Peer, Reply, RequestContext, Row
from roquette.wire.command import Command
from roquette.wire.header_codec import ext_dict

Run = Callable[..., Any]


def test_a_reply_carries_ext_and_body(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        answer = await client.invoke(case.address, case.echo, b"", b"hello")

        assert (answer.code, answer.body) == (0, b"hello")
        assert ext_dict(answer.ext)["peer"].startswith("10.0.0.2:")
        assert answer.is_response

    bench(scenario)


def test_a_refusal_becomes_its_code_and_remark(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        answer = await case.client().invoke(case.address, case.refuse)
        assert (answer.code, answer.remark) == (17, "no such thing")

    bench(scenario)


def test_a_crash_is_code_1_and_the_server_goes_on(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        answer = await client.invoke(case.address, case.crash)
        assert (answer.code, answer.remark) == (1, FAILED), "Python's words are for the log"
        assert (await client.invoke(case.address, case.echo, b"", b"x")).body == b"x"

    bench(scenario)


def test_an_unknown_code_is_code_3(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        answer = await case.client().invoke(case.address, 4711)
        assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
        assert case.dispatcher.unsupported == 1

    bench(scenario)


def test_a_code_of_a_missing_subsystem_says_which(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        answer = await case.client().invoke(case.address, 513)
        text = " request type 513 not supported: Roquette has no static topics"
        assert (answer.code, answer.remark) == (3, text)

    bench(scenario)


def test_a_header_that_does_not_fit_is_code_1(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        good = await client.invoke(case.address, case.topic, b'{"topic":"T"}')
        bad = await client.invoke(case.address, case.topic, b'{"subject":"T"}')
        assert (good.code, good.body) == (0, b"T")
        assert bad.code == 1
        assert "topic" in (bad.remark or "")

    bench(scenario)


def test_a_task_answers_when_it_is_done(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        answer = await client.invoke(case.address, case.task, b"", b"slow")
        assert answer.body == b"slow"
        assert case.loop.time() > 1
        assert (await client.invoke(case.address, case.task_crash, b"", b"x")).code == 16
        assert (await client.invoke(case.address, case.task_crash)).code == 1

    bench(scenario)


def test_later_and_held_wait_for_their_owner(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        first = case.loop.create_task(client.invoke(case.address, case.later, b"", b"durable"))
        second = case.loop.create_task(client.invoke(case.address, case.held, b"", b"pull"))
        await asyncio.sleep(0.5)
        assert not first.done()
        assert not second.done()
        by_kind = {type(outcome).__name__: (ctx, outcome) for ctx, outcome in case.parked}
        ctx, outcome = by_kind["Later"]
        assert outcome.end_offset == 7
        case.dispatcher.answer(ctx, outcome.reply)
        ctx = case.hold.job
        case.dispatcher.rerun(ctx, may_hold=False)

        assert (await first).body == b"durable"
        assert (await second).body == b"after all"

    bench(scenario)


def test_a_oneway_request_is_never_answered(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for code in (case.echo, case.refuse, case.crash, 4711):
            raw.send(code, b"one", oneway=True)
        last = raw.send(case.echo, b"two")

        answer = await raw.receive()

        assert (answer.opaque, answer.body) == (last, b"two")
        assert case.seen == [b"one", b"two"]

    bench(scenario)


def test_answers_come_in_order_and_in_few_writes(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        sent = [raw.wire.send_request(case.echo, b"", b"%d" % i) for i in range(50)]
        raw.writer.write(b"".join(raw.wire.data_to_send()))

        got = [await raw.receive() for _ in sent]

        assert [answer.opaque for answer in got] == sent
        assert case.turns <= 4, "one turn per batch, none for its answers"

    bench(scenario)


def test_a_full_lane_refuses_with_overload(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for i in range(5):
            raw.wire.send_request(case.echo, b"", b"%d" % i)
        case.loop.network.set_delay("10.0.0.1", "10.0.0.254", 0, 0)
        raw.writer.write(b"".join(raw.wire.data_to_send()))

        got = [await raw.receive() for _ in range(5)]

        refused = [a for a in got if a.code == 2]
        assert {a.remark for a in refused} == {
            "[OVERLOAD]system busy, start flow control for a while"
        }
        assert len(refused) == case.dispatcher.refused >= 1

    bench(scenario, lanes=[LaneLimits("all", 2)])


@cache
def peer_of(number: int) -> Peer:
    return Peer(cast(Any, None), asyncio.Transport(), number, bytes(8), f"10.0.0.{number}:1")


def job_of(peer: int) -> RequestContext:
    row = Row(1, lambda c, h, b: None, None, 0)
    return RequestContext(peer_of(peer), Command(code=1, opaque=1), row, 0)


def test_nobody_takes_what_is_everybodys() -> None:
    """One peer has the whole lane while it is alone; others get in, are served in turn, and it has its share from then on."""
    lane = WaitingRequests(LaneLimits("all", 10_000, budget=512))

    def ask(peer: int, count: int) -> int:
        got = 0
        for _ in range(count):
            job = job_of(peer)
            if len(lane.jobs) < lane.limits.free or lane.has_room(job.peer):
                lane.jobs.append(job)
                got += 1
        return got

    assert ask(0, 20_000) == 10_000
    assert [ask(peer, 10) for peer in range(1, 101)] == [10] * 100
    assert ask(0, 1) == 0
    served = Counter(job.peer.id for job in lane.take())
    assert served.total() == 512 and min(served[peer] for peer in range(101)) == 5
    assert len(lane.jobs) == 11_000 - 512
    served += Counter(job.peer.id for job in lane.take())
    assert all(served[peer] == 10 for peer in range(1, 101))
    left = list(lane.jobs)
    lane.take()
    assert lane.jobs == left[512:]  # of one peer in the order of its coming


def test_a_crowd_has_a_share_each_and_a_small_lane_its_bound() -> None:
    lane = WaitingRequests(LaneLimits("all", 1_000, budget=100))
    for peer in range(50):
        for _ in range(1_000):
            job = job_of(peer)
            if len(lane.jobs) < lane.limits.free or lane.has_room(job.peer):
                lane.jobs.append(job)
    assert len(lane.jobs) <= 2_000
    assert lane.has_room(job_of(99).peer)
    small = WaitingRequests(LaneLimits("all", 2))
    for peer in range(5):
        if len(small.jobs) < small.limits.free or small.has_room(job_of(peer).peer):
            small.jobs.append(job_of(peer))
    assert len(small.jobs) == 2


@pytest.mark.promise(
    "Security",
    "who may not ask takes no place of others; what one brings at once delays nobody for long; who fills v5's table of clients is the one refused",
)
def test_what_one_brings_at_once_delays_nobody_for_long(bench: Run) -> None:
    """It is served its share of each turn, and not read meanwhile; alone it has the whole turn."""

    async def scenario(case: Any) -> None:
        hostile, honest = await case.raw(), await case.raw()
        for _ in range(3_000):
            hostile.wire.send_request(case.echo, b"", b"h")
        case.loop.random.random = lambda: 0.99  # no splits: they arrive together
        hostile.writer.write(b"".join(hostile.wire.data_to_send()))
        honest.send(case.echo, b"honest")
        assert (await honest.receive()).body == b"honest"
        assert case.seen.index(b"honest") <= OF_TURN
        assert [(await hostile.receive()).body for _ in range(3_000)] == [b"h"] * 3_000
        assert TURN in case.unread and case.turns < 3_000 // OF_TURN
        assert not any(peer.unread for peer in case.server.peers.values())

    bench(scenario, lanes=[LaneLimits("all", 10_000)])


@pytest.mark.promise(
    "Security",
    "who may not ask takes no place of others; what one brings at once delays nobody for long; who fills v5's table of clients is the one refused",
)
def test_who_may_not_ask_takes_no_place(bench: Run) -> None:
    """Where many wait the guard is asked first."""

    def guard(job: Any, header: Any) -> None:
        if job.command.body == b"stranger":
            raise Refused(16, "nobody knows you")

    async def scenario(case: Any) -> None:
        case.dispatcher._guard = guard
        raw, stranger = await case.raw(), await case.raw()
        for _ in range(10):
            stranger.wire.send_request(case.echo, b"", b"stranger")
        for i in range(4):
            raw.wire.send_request(case.echo, b"", b"%d" % i)
        case.loop.random.random = lambda: 0.99  # no splits: they arrive together
        stranger.writer.write(b"".join(stranger.wire.data_to_send()))
        raw.writer.write(b"".join(raw.wire.data_to_send()))
        assert [(await raw.receive()).code for _ in range(4)] == [0] * 4
        assert [(await stranger.receive()).code for _ in range(10)] == [16] * 10

    bench(scenario, lanes=[LaneLimits("all", 100, budget=1)])


def test_what_waited_too_long_is_refused(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for i in range(3):
            raw.wire.send_request(case.slow, b"", b"%d" % i)
        case.loop.random.random = lambda: 0.99  # no splits: they arrive together
        raw.writer.write(b"".join(raw.wire.data_to_send()))

        first, *late = [await raw.receive() for _ in range(3)]

        assert first.code == 0
        for answer in late:
            assert answer.code == 2
            assert answer.remark is not None
            assert answer.remark.startswith(
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 3"
            )
            assert "ms, size of queue: " in answer.remark
        assert case.seen == [b"0"]

    bench(scenario, lanes=[LaneLimits("all", 100, wait_ms=200, budget=1)])


def test_what_comes_after_a_turn_was_asked_for_has_come_now(bench: Run) -> None:
    """An answer to one that waited asks for a turn; what another peer brings before that turn is not as old as the
    last that came."""

    async def scenario(case: Any) -> None:
        waits, late = await case.raw(), await case.raw()
        waits.send(case.held)
        late.send(case.echo, b"first")
        assert (await late.receive()).body == b"first"
        await asyncio.sleep(10)
        case.dispatcher.rerun(case.hold.job, may_hold=False)
        peer = max(case.server.peers.values(), key=lambda peer: int(peer.remote.rpartition(":")[2]))
        case.dispatcher.receive(peer, [Command(case.echo, 7, body=b"second")])
        answers = [await waits.receive(), await late.receive()]
        assert [(answer.code, answer.body) for answer in answers] == [
            (0, b"after all"),
            (0, b"second"),
        ]
        assert peer.last_active > 10

    bench(scenario, lanes=[LaneLimits("all", 100, wait_ms=200)])


def test_a_lane_works_within_its_budget_per_turn(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for i in range(10):
            raw.wire.send_request(case.echo, b"", b"%d" % i)
        raw.writer.write(b"".join(raw.wire.data_to_send()))

        assert [(await raw.receive()).body for _ in range(10)] == [b"%d" % i for i in range(10)]
        assert case.turns >= 5

    bench(scenario, lanes=[LaneLimits("all", 100, budget=2)])


@pytest.mark.parametrize(("size", "turns"), [(1, 3), (LARGE + 1, 16)])
def test_a_turn_that_takes_long_leaves_the_rest_to_the_next(
    bench: Run, size: int, turns: int
) -> None:
    """The clock is read before each eighth request, and before each large one; nobody is overtaken."""

    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for i in range(16):
            raw.wire.send_request(case.slow, b"", b"%d" % i * size)
        case.loop.random.random = lambda: 0.99  # no splits: they arrive together
        raw.writer.write(b"".join(raw.wire.data_to_send()))

        assert [(await raw.receive()).body for _ in range(16)] == [
            b"%d" % i * size for i in range(16)
        ]
        assert case.turns == turns
        assert [size for _, size, _, _ in case.dispatcher.lane_sizes()] == [0]

    bench(scenario)


def test_the_server_may_ask_its_clients(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        told: list[bytes] = []

        def answer(ctx: Any, header: None, body: bytes) -> Reply:
            told.append(body)
            return Reply(body=b"re: " + body)

        client = case.client(rows=[Row(40, answer, None, 0)])
        await client.invoke(case.address, case.echo)
        peer = next(iter(case.server.peers.values()))

        peer.notify(40, b"", b"news")
        got = await peer.invoke(40, b"", b"question", 3000)

        assert got.body == b"re: question"
        assert told == [b"news", b"question"]

    bench(scenario)


def test_a_reply_too_large_for_a_frame_is_an_error_reply(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        answer = await case.client().invoke(case.address, case.big)
        assert answer.code == 1
        assert "larger than" in (answer.remark or "")

    bench(scenario, reply_size=9_000_000)


def test_lane_sizes_show_what_waits(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        assert case.dispatcher.lane_sizes() == [("all", 0, 100, 0)]

    bench(scenario)


def test_two_rows_of_one_code_are_a_mistake(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        row = Row(1, lambda c, h, b: Reply(), None, 0)
        with pytest.raises(AssertionError, match="two rows for code 1"):
            case.client(rows=[row, row])

    bench(scenario)


def test_requests_of_a_peer_that_does_not_read_wait_for_it(bench: Run) -> None:
    """Pipelined requests with large answers: only what the peer takes is produced, in order, none is lost."""

    async def scenario(case: Any) -> None:
        raw = await case.raw()
        asked = [raw.wire.send_request(case.echo, b"", b"x" * 400_000) for _ in range(8)]
        for part in raw.wire.data_to_send():
            raw.writer.write(part)
        asked += [raw.wire.send_request(case.big, b"") for _ in range(30)]
        raw.writer.write(b"".join(raw.wire.data_to_send()))
        await asyncio.sleep(5)
        (peer,) = case.server.peers.values()
        assert peer.transport.get_write_buffer_size() < 5 << 20
        assert peer.parked or peer.paused
        other = case.client()
        assert (await other.invoke(case.address, case.echo, b"", b"me")).body == b"me"

        answers = [(await raw.receive()).opaque for _ in asked]

        assert answers == asked
        assert not peer.parked

    bench(scenario, reply_size=500_000)


@pytest.mark.promise(
    "Security", "one guard at every port; who is not proven gets nothing, and changes nothing"
)
def test_the_guard_is_asked_once_before_a_request_is_processed(bench: Run) -> None:
    asked: list[tuple[int, Any]] = []

    def guard(ctx: RequestContext, header: Any) -> None:
        asked.append((ctx.command.code, getattr(header, "topic", None)))
        if ctx.command.code == 1:
            raise Refused(16, "who are you")

    async def scenario(case: Any) -> None:
        client = case.client()
        answer = await client.invoke(case.address, case.echo, b"", b"x")
        assert (answer.code, answer.remark, case.seen) == (16, "who are you", [])
        await client.oneway(case.address, case.echo, b"", b"x")
        assert (await client.invoke(case.address, case.topic, b'{"topic":"T"}')).body == b"T"
        held = asyncio.ensure_future(client.invoke(case.address, case.held))
        await asyncio.sleep(0.1)
        case.dispatcher.rerun(case.hold.job, may_hold=False)
        assert (await held).body == b"after all"
        assert asked == [(1, None), (1, None), (case.topic, "T"), (case.held, None)]
        assert case.seen == [], "the one-way request was refused, too"

    bench(scenario, guard=guard)
