"""What may be committed while messages are in work."""

import random

from roquette.client.core.process_queue import ProcessQueue
from roquette.message.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("t", "a", 0)


def message(offset: int, size: int = 10) -> ReceivedMessage:
    return ReceivedMessage(
        topic="t",
        queue=QUEUE,
        body=b"x" * size,
        properties={},
        tag=None,
        keys=(),
        message_id="",
        offset_message_id="",
        queue_offset=offset,
        physical_offset=offset,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        born_host="",
        store_host="",
        reconsume_times=0,
        flag=0,
        sys_flag=0,
        body_crc=0,
        store_size=size,
        prepared_offset=0,
    )


def test_nothing_pulled_commits_where_it_began() -> None:
    assert ProcessQueue(QUEUE, 5).committable() == 5


def test_the_oldest_unfinished_message_holds_the_commit_back() -> None:
    state = ProcessQueue(QUEUE, 5)
    batch = [message(5), message(6), message(9)]
    state.take(batch, 12)
    state.finish(batch[1])
    state.finish(batch[2])

    assert state.committable() == 5
    state.finish(batch[0])
    assert state.committable() == 12


def test_size_count_and_span_follow_the_messages() -> None:
    state = ProcessQueue(QUEUE, 0)
    state.take([message(0, 7), message(40, 3)], 50)

    assert (state.count, state.size, state.span()) == (2, 10, 50)
    state.finish(message(0, 7))
    assert (state.count, state.size, state.span()) == (1, 3, 10)
    state.finish(message(40, 3))
    assert (state.count, state.size, state.span()) == (0, 0, 0)


def test_a_message_pulled_or_finished_twice_counts_once() -> None:
    state = ProcessQueue(QUEUE, 0)
    state.take([message(0)], 1)
    state.take([message(0)], 1)
    state.finish(message(0))
    state.finish(message(0))

    assert (state.count, state.size, state.committable()) == (0, 0, 1)


def test_filtered_messages_move_the_commit_forward() -> None:
    state = ProcessQueue(QUEUE, 0)
    state.take([], 400)

    assert state.committable() == 400


def test_committable_equals_a_simple_model() -> None:
    draw = random.Random(3)
    state, unfinished, pulled = ProcessQueue(QUEUE, 0), [], 0
    for _ in range(500):
        if draw.random() < 0.4:
            batch = [message(pulled + n) for n in range(draw.randrange(1, 6))]
            pulled += len(batch)
            state.take(batch, pulled)
            unfinished += batch
        elif unfinished:
            state.finish(unfinished.pop(draw.randrange(len(unfinished))))
        expected = min((m.queue_offset for m in unfinished), default=pulled)
        assert state.committable() == expected
        assert state.count == len(unfinished)
