"""Class H: requests that are at work in tasks have a bound, for each connection and in all; nobody waits for another's."""

import asyncio
from types import SimpleNamespace

from roquette.remoting.running import OF_PEER, RUNNING, LargeAnswers


def test_a_connection_with_too_many_tasks_waits_and_others_do_not(bench):
    async def scenario(case):
        running = case.dispatcher.running
        running.of_peer = 16
        greedy, other = await case.raw(), await case.raw()
        opaques = [greedy.send(case.task, b"%d" % number) for number in range(90)]
        most = 0
        began = case.loop.time()
        for _ in range(20):
            await asyncio.sleep(0.05)
            most = max(most, running.count)
            asked = case.loop.time()
            other.send(case.echo, b"hello")
            assert (await other.receive()).body == b"hello"
            assert case.loop.time() - asked < 0.1
        answers = [await greedy.receive() for _ in opaques]
        assert {answer.code for answer in answers} == {0}
        assert sorted(answer.opaque for answer in answers) == opaques
        assert most == 16
        assert 90 / 16 <= case.loop.time() - began < 30
        await asyncio.sleep(0.1)
        assert running.count == 0
        greedy.send(case.echo, b"again")
        assert (await greedy.receive()).body == b"again"
        assert not any(peer.crowded or peer.parked for peer in case.server.peers.values())

    bench(scenario)


def test_what_is_not_read_is_not_kept(bench):
    """The bytes of a crowded connection stay with its sender."""

    async def scenario(case):
        case.dispatcher.running.of_peer = 4
        greedy = await case.raw()
        for number in range(2_000):
            greedy.send(case.task, bytes(4_000) + b"%d" % number)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        (peer,) = case.server.peers.values()
        assert peer.crowded
        assert len(peer.parked) < 600
        greedy.writer.close()
        await asyncio.sleep(5)
        assert case.dispatcher.running.count == 0

    bench(scenario)


def test_all_connections_together_have_a_bound(bench):
    async def scenario(case):
        running = case.dispatcher.running
        running.most = 20
        clients = [await case.raw() for _ in range(15)]
        for client in clients:
            for number in range(10):
                client.send(case.task, b"%d" % number)
        most = 0
        for _ in range(30):
            await asyncio.sleep(0.1)
            most = max(most, running.count)
        assert 20 <= most <= 20 + len(clients)
        for client in clients:
            assert {(await client.receive()).body for _ in range(10)} == {
                b"%d" % n for n in range(10)
            }
        assert running.count == 0

    bench(scenario)


def test_connections_that_come_and_go_leave_no_more_than_twice_the_bound(bench):
    async def scenario(case):
        running = case.dispatcher.running
        running.most = 10
        for _ in range(50):
            client = await case.raw()
            client.send(case.task, b"x")
            await asyncio.sleep(0.005)
            client.writer.close()
        assert running.count == 20
        client = await case.raw()
        client.send(case.task, b"x")
        answer = await client.receive()
        assert (answer.code, answer.remark[:21]) == (2, "[OVERLOAD]system busy")
        await asyncio.sleep(2)
        client.send(case.task, b"x")
        assert (await client.receive()).code == 0
        assert running.count == 0

    bench(scenario)


def test_a_crowded_connection_that_reads_nothing_stays_bounded_and_goes_on(bench):
    async def scenario(case):
        case.dispatcher.running.of_peer = 4
        client = await case.raw()
        for _ in range(30):
            client.send(case.big)
            client.send(case.task, b"t")
        await asyncio.sleep(30)
        codes = [(await client.receive()).code for _ in range(60)]
        assert codes == [0] * 60
        client.send(case.echo, b"x")
        assert (await client.receive()).body == b"x"

    bench(scenario, reply_size=300_000)


def test_the_bounds_are_as_documented():
    assert (OF_PEER, RUNNING) == (256, 10_000)


def test_large_answers_are_made_one_by_one_and_connections_take_turns(bench):
    async def scenario(case):
        greedy, other, gone = [await case.raw() for _ in range(3)]
        for number in range(5):
            greedy.send(case.large, b"refused" if number == 1 else b"g%d" % number)
        await asyncio.sleep(0.1)
        gone.send(case.large, b"nobody's")
        other.send(case.large, b"o0")
        other.send(case.echo, b"small")
        assert (await other.receive()).body == b"small"
        gone.writer.close()
        assert (await other.receive()).body == b"o0"
        assert case.loop.time() < 3.5
        answers = [await greedy.receive() for _ in range(5)]
        assert [answer.body for answer in answers if not answer.code] == [
            b"g0",
            b"g2",
            b"g3",
            b"g4",
        ]
        assert case.made == [b"g0", b"refused", b"o0", b"g2", b"g3", b"g4"]
        assert case.dispatcher.running.count == 0
        for number in range(3):  # of which the server's end finds one at work, and two that wait
            greedy.send(case.large, b"h%d" % number)
        await asyncio.sleep(0.1)

    bench(scenario)


def test_a_turn_whose_request_was_given_up_is_the_next_ones():
    async def scenario():
        large, peers = LargeAnswers(), [SimpleNamespace(id=number) for number in range(3)]
        await large.enter(peers[0])
        waiting = [asyncio.ensure_future(large.enter(peer)) for peer in peers]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        large.leave()
        waiting[1].cancel()  # its turn has come, and it does not know yet
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == [True, True, False]
        large.leave()
        await asyncio.wait_for(large.enter(peers[0]), 1)

    asyncio.run(scenario())
