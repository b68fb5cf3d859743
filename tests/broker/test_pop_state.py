"""The pure parts of POP: entries of the revive log, the table of what is out, receipts, orders, waiting, modes."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette.broker.floor.tables.groups import RequestModes, assign
from roquette.broker.pop import receipt
from roquette.broker.pop.checkpoint import Ack, CheckPoint, decode, encode
from roquette.broker.pop.order import ILLEGAL, NO_COMMIT, OrderTable
from roquette.broker.pop.revive import InFlightTable, ack_texts, entry_properties
from roquette.broker.pop.state import PollHold, PollTable
from roquette.errors import Refused
from roquette.message.message import MessageQueue
from roquette.store.format.results import Arrival
from roquette.store.queue_read import MATCH_ALL, RecordFilter
from roquette.wire.bodies import SetMessageRequestModeRequestBody


def point(start=0, diffs=(0, 1, 2), pop_time=100, invisible=50, topic="T"):
    return CheckPoint(
        start_offset=start, pop_time=pop_time, invisible_time=invisible, num=len(diffs),
        topic=topic, group="g", diffs=list(diffs), broker_name="b",
    )  # fmt: skip


def ack(offset, start=0, pop_time=100):
    return Ack(ack_offset=offset, start_offset=start, group="g", topic="T", pop_time=pop_time)


# Entries


def test_a_check_point_has_apaches_keys():
    found = json.loads(encode(point(7, (0, 2))))

    assert found == {
        "so": 7, "pt": 100, "it": 50, "bm": 0, "n": 2, "q": 0, "t": "T", "c": "g", "ro": 0,
        "d": [0, 2], "bn": "b", "sp": False,
    }  # fmt: skip


def test_acknowledgements_have_apaches_keys():
    one = Ack(ack_offset=9, start_offset=7, group="g", topic="T", pop_time=5, broker_name="b")
    some = Ack(start_offset=7, group="g", topic="T", pop_time=5, broker_name="b", offsets=[7, 9])

    common = {"so": 7, "c": "g", "t": "T", "q": 0, "pt": 5, "bn": "b"}
    assert json.loads(encode(one)) == common | {"ao": 9}
    assert json.loads(encode(some)) == common | {"ao": -1, "aol": [7, 9]}
    assert (one.tag, some.tag) == ("ack", "bAck")
    assert one.unique_key == "T@0@9@g@5@b@ack"
    assert some.unique_key == "T@0@[7, 9]@g@5@bAck"
    assert point().unique_key == "T@0@0@g@100@b@ck"


@pytest.mark.parametrize(
    "tag, body",
    [
        ("ck", b"{"), ("ck", b"{}"), ("ck", b'{"t":"T","c":"g","n":3,"d":[0]}'), ("ack", b"[]"),
        ("x", b'{"t":"T","c":"g"}'), (None, b"{}"), ("ck", b'{"t":"T","c":"g","n":-1}'),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_passed_over(tag, body):
    assert decode(tag, body) is None


def test_an_old_check_point_has_neighbours():
    old = decode("ck", b'{"t":"T","c":"g","so":5,"n":3,"pt":1,"it":1,"bm":0}')

    assert isinstance(old, CheckPoint)
    assert old.unacknowledged() == [5, 6, 7]
    assert [old.index_of(offset) for offset in (4, 5, 7, 8)] == [-1, 0, 2, -1]


# The table of what is out


def test_a_check_point_stays_until_all_is_acknowledged():
    table = InFlightTable()
    table.add(point(), 10)
    assert table.acknowledge(ack(0))
    assert table.acknowledge(ack(2))
    assert table.due(1_000).unacknowledged() == [1]
    assert table.acknowledge(ack(1))

    assert (len(table), table.due(1_000), table.first_offset()) == (0, None, None)
    assert not table.acknowledge(ack(1))
    assert not table.acknowledge(ack(0, start=5))


def test_two_check_points_of_one_key_are_both_kept():
    table = InFlightTable()
    table.add(point(), 1)
    table.add(point(diffs=(0,)), 2)
    table.acknowledge(ack(0))

    assert [p.unacknowledged() for p in table.points()] == [[1, 2], [0]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 4)), max_size=80))
def test_the_table_behaves_as_a_list(steps):
    table, model = InFlightTable(), {}
    for number, (kind, value, index) in enumerate(steps):
        if kind <= 1:
            new = point(start=100 * number, pop_time=number, invisible=value, diffs=(0, 1, 5))
            table.add(new, number)
            model[number] = (new.revive_time, {0, 1, 5})
        elif kind == 2 and model:
            chosen = sorted(model)[index % len(model)]
            offset = (0, 1, 5)[value % 3]
            table.acknowledge(ack(100 * chosen + offset, start=100 * chosen, pop_time=chosen))
            model[chosen][1].discard(offset)
            if not model[chosen][1]:
                del model[chosen]
        else:
            due = table.due(value)
            expected = min(((t, n) for n, (t, _) in model.items()), default=(10**9, None))
            if expected[0] <= value:
                assert due.revive_offset == expected[1]
                table.remove(due)
                del model[expected[1]]
            else:
                assert due is None
        assert len(table) == len(model)
        assert table.first_offset() == (min(model) if model else None)


def test_the_orders_of_the_table_stay_small():
    table = InFlightTable()
    table.add(point(invisible=10**9), 0)
    for number in range(1, 20_000):
        table.add(point(start=number, diffs=(0,), pop_time=number), number)
        table.acknowledge(ack(number, start=number, pop_time=number))

    assert len(table) == 1
    assert len(table._order) < 2_000
    assert len(table._due) < 2_000


# Receipts


@pytest.mark.parametrize(
    "topic, kind, real",
    [("T", "0", "T"), ("%RETRY%g_T", "1", "%RETRY%g_T"), ("%RETRY%g+T", "2", "%RETRY%g+T")],
)
def test_receipts(topic, kind, real):
    text = receipt.build_extra_info(5, 1000, 60_000, 3, topic, "broker-a", 2, 7)

    assert text == f"5 1000 60000 3 {kind} broker-a 2 7"
    assert receipt.real_topic("T", "g", kind) == real
    assert parts_of(receipt.parse_extra_info(text)) == (5, 1000, 60_000, 3, "broker-a")
    assert receipt.start_offset_info(topic, 2, 5) == f"{kind} 2 5"
    assert receipt.message_offset_info(topic, 2, [5, 7]) == f"{kind} 2 5,7"
    assert receipt.queue_count_info(topic, 2, 1) == f"{kind} 2 1"
    assert receipt.offset_count_info(topic, 2, 7, 1) == f"{kind} qo2%7 1"


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "getCkQueueOffset fail, extraInfoStrs length 0"),
        ("1", "getPopTime fail, extraInfoStrs length 1"),
        ("1 2 3", "getReviveQid fail, extraInfoStrs length 3"),
        ("1 2 3 4 0", "getBrokerName fail, extraInfoStrs length 5"),
        ("x 2 3 4 0 b", 'For input string: "x"'),
        ("1 2 3 99999999999999999999 0 b", "For input string"),
        ("1 9223372036854775808 3 4 0 b", "For input string"),
    ],
)
def test_bad_receipts(text, words):
    with pytest.raises(Refused, match=words.replace("(", r"\(")) as caught:
        receipt.parse_extra_info(text)
    assert caught.value.code == 1


def parts_of(found):
    return tuple(
        getattr(found, name)
        for name in ("start_offset", "pop_time", "invisible_time", "revive_qid", "broker_name")
    )


NUMBERS = st.integers(0, 10**20).map(str) | st.sampled_from(["0", "007", "-1", "+5", "", "x", "١"])


@given(
    st.text(max_size=60)
    | st.builds(
        lambda numbers, rest, more: " ".join([*numbers, *rest]) + more,
        st.lists(NUMBERS, min_size=3, max_size=5),
        st.lists(st.sampled_from(["0", "2", "", "broker-a", "ü", "a\x02b"]) | NUMBERS, max_size=4),
        st.sampled_from(["", " ", "  ", " 7"]),
    )
)
def test_what_is_read_as_plain_is_what_the_parts_say(text):
    plain = receipt.plain_receipt(text)
    with contextlib.suppress(Refused):
        assert plain is None or parts_of(plain) == parts_of(receipt.parse_parts(text))
        return
    assert plain is None, "the plain reader takes what the general one refuses"


@given(
    names=st.tuples(*[st.text(max_size=8) | st.sampled_from(["g", "a\x02b"])] * 3),
    numbers=st.tuples(*[st.integers(0, 2**63 - 1)] * 5),
)
def test_an_acknowledgement_is_logged_as_an_entry(names, numbers):
    group, topic, broker = names
    queue_id, offset, start, popped, invisible = numbers
    got = receipt.PopReceipt(start, popped, invisible, 3, broker)
    entry = Ack(
        ack_offset=offset, start_offset=start, group=group, topic=topic, queue_id=queue_id,
        pop_time=popped, broker_name=broker,
    )  # fmt: skip
    named, body = ack_texts(group, topic, queue_id, offset, got)
    assert (named, body) == (entry_properties(entry, popped + invisible), encode(entry))
    assert decode("ack", body) == entry


# Orders


def orderly(table, offsets, *, pop_time=100, attempt=None, now=100):
    return table.update(
        "T", "g", 0, attempt_id=attempt, pop_time=pop_time, invisible_time=50, offsets=offsets,
        now_ms=now,
    )  # fmt: skip


def blocked(table, now, attempt=None):
    return table.blocked(attempt, "T", "g", 0, invisible_time=50, now_ms=now)


def test_an_order_blocks_until_its_time_or_its_last_ack():
    table = OrderTable()
    assert orderly(table, [5, 7, 8]) == ["0 0 0"]
    assert blocked(table, 149)
    assert not blocked(table, 150)
    assert table.commit_and_next("T", "g", 0, 7, 100, 110) == 5
    assert table.commit_and_next("T", "g", 0, 5, 100, 110) == 8
    assert blocked(table, 120)
    assert table.commit_and_next("T", "g", 0, 8, 100, 110) == 9
    assert not blocked(table, 120)


def test_orders_refuse_strangers():
    table = OrderTable()
    assert table.commit_and_next("T", "g", 0, 5, 100, 110) == 6
    orderly(table, [5])
    assert table.commit_and_next("T", "g", 0, 6, 100, 110) == ILLEGAL
    assert table.commit_and_next("T", "g", 0, 5, 99, 110) == NO_COMMIT


def test_orders_count_how_often_a_message_was_out():
    table = OrderTable()
    orderly(table, [5, 6])
    assert orderly(table, [5, 6, 9], pop_time=200) == ["0 qo0%5 1", "0 qo0%6 1", "0 0 0"]
    assert orderly(table, [5, 6], pop_time=300) == ["0 qo0%5 2", "0 qo0%6 2", "0 0 2"]


def test_the_same_attempt_is_neither_blocked_nor_counted():
    table = OrderTable()
    orderly(table, [5], attempt="a")
    assert not blocked(table, 110, "a")
    assert blocked(table, 110, "b")
    assert orderly(table, [5], pop_time=120, attempt="a") == ["0 0 0"]


def test_a_changed_time_moves_the_block():
    table = OrderTable()
    orderly(table, [5, 6])
    table.set_next_visible("T", "g", 0, 6, pop_time=100, next_visible=500, now_ms=100)
    assert table.freed(150) == []
    assert blocked(table, 499)
    assert table.freed(500) == [("T", "g", 0)]
    assert not blocked(table, 500)


def test_orders_go_through_their_file_and_are_cleaned():
    table, again = OrderTable(), OrderTable()
    orderly(table, [5, 6], attempt="x")
    table.commit_and_next("T", "g", 0, 5, 100, 110)
    again.load(table.to_wrapper().table, 120)

    assert blocked(again, 130)
    assert again.freed(150) == [("T", "g", 0)]
    again.clean(lambda topic, group, queue_id: True, 200)
    assert blocked(again, 130)
    again.clean(lambda topic, group, queue_id: False, 200)
    assert not blocked(again, 130)


# Waiting


def hold(queue_id=-1, deadline=1_000, group="g", chosen=MATCH_ALL):
    return PollHold("T", group, queue_id, chosen, deadline)


def polls(capacity=100, per_key=10, **more):
    return PollTable(capacity, per_key, lambda offset, size: b"", **more)


def arrival(topic="T", queue_id=0, code=0):
    return Arrival(topic, queue_id, 0, code, 0, 0)


def test_an_arrival_wakes_one_of_a_group_under_each_key():
    table = polls()
    held = [hold(), hold(), hold(0), hold(1), hold(group="h")]
    for one in held:
        assert table.hold(one, ())

    assert table.on_arrival(arrival()) == [held[0], held[2], held[4]]
    assert table.on_arrival(arrival()) == [held[1]]
    assert table.on_arrival(arrival("U")) == []
    assert (table.size, table.count("T", "g", 1)) == (1, 1)


def test_a_retry_wakes_whoever_waits_for_the_group():
    table = polls()
    held = [hold(3), hold(group="h")]
    table.hold(held[0], ("%RETRY%g_T",))
    table.hold(held[1], ("%RETRY%h_T",))

    assert table.on_arrival(arrival("%RETRY%g_T", code=99)) == [held[0]]
    assert table.on_arrival(arrival("%RETRY%g_T")) == []


def test_a_message_nobody_wants_wakes_nobody():
    table = polls()
    table.hold(hold(chosen=RecordFilter(frozenset((7,)), None)), ())

    assert table.on_arrival(arrival(code=6)) == []
    assert len(table.on_arrival(arrival(code=7))) == 1


def test_waiting_ends_in_the_order_of_deadlines():
    table = polls()
    late, soon = hold(deadline=500), hold(deadline=100)
    table.hold(late, ("R",))
    table.hold(soon, ("R",))

    assert table.expire(99) == []
    assert table.expire(600) == [soon, late]
    assert (table.size, table._watched, table._waiting) == (0, {}, {})


def test_bounds_of_waiting():
    table = polls(capacity=3, per_key=1)

    assert [table.hold(hold(), ()) for _ in range(3)] == [True, True, False]
    assert [table.hold(hold(1), ()) for _ in range(2)] == [True, False]


def test_the_one_that_waits_longest_may_go_last():
    table = polls(last_first=True)
    late, soon = hold(deadline=500), hold(deadline=100)
    for one in (late, soon):
        table.hold(one, ())

    assert table.wake("T", "g", -1) is late
    assert table.drain() == [soon]


# Modes


def queues(count):
    return [MessageQueue("T", "b", number) for number in range(count)]


def mode(kind, share=0):
    return SetMessageRequestModeRequestBody("T", "g", kind, share)


CLIENTS = ["c1", "c2", "c3", "c4", "c5"]


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
@pytest.mark.parametrize("count", [1, 4, 5, 7, 12])
def test_pulled_queues_belong_to_one_client_each(strategy, count):
    parts = [assign(mode("PULL"), strategy, queues(count), CLIENTS, client) for client in CLIENTS]

    assert sorted(queue for part in parts for queue in part) == queues(count)


def test_popping_clients_share():
    def ids(share, count, client="c4"):
        found = assign(mode("POP", share), "AVG", queues(count), CLIENTS, client)
        return [queue.queue_id for queue in found]

    assert ids(0, 4) == [-1]
    assert ids(4, 4) == [-1]
    assert ids(1, 10) == [6, 7, 8, 9]
    assert ids(1, 10, "c5") == [8, 9, 0, 1]
    assert ids(2, 3) == [0]
    assert ids(1, 10, "stranger") == []


def test_there_is_no_assignment_without_strategy_or_clients():
    assert assign(mode("PULL"), "CONFIG", queues(2), CLIENTS, "c1") is None
    assert assign(mode("PULL"), "AVG", queues(2), [], "c1") is None
    assert assign(mode("PULL"), "AVG", [], CLIENTS, "c1") is None


def test_modes_nobody_set():
    modes = RequestModes()
    modes.put(mode("POP", 3))

    def find(topic, default="POP"):
        return modes.find(topic, "g", default_mode=default, default_share=-1)

    assert find("T", "PULL").pop_share_queue_num == 3
    assert (find("U").mode, find("U").pop_share_queue_num) == ("POP", -1)
    assert find("%RETRY%g").mode == "PULL"
