"""Receipt handles: what each says does not depend on what was read before it."""

from hypothesis import example, given
from hypothesis import strategies as st

from roquette.proxy.renewals import LONGEST, read_handle
from roquette.proxy.statuses import RpcError

NUMBERS = st.sampled_from(["0", "7", "17", "999", "-1", "+5", " 1", "", "x", "9" * 30, "0" * 400])
WORDS = st.tuples(
    NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["0", "1", "2", "3", ""]),
    st.sampled_from(["broker-a", "b", ""]), NUMBERS, NUMBERS,
)  # fmt: skip
HANDLES = st.tuples(WORDS, st.lists(NUMBERS, max_size=3)).map(lambda it: " ".join((*it[0], *it[1])))
SOUND = "0 1732000000123 60000 2 0 broker-a 3"


def read_alone(text: str) -> tuple[object, ...] | None:
    """What a handle says; None: it is none."""
    words = text.split(" ")
    if len(text) > LONGEST or len(words) < 8 or words[4] not in ("0", "1", "2") or not words[5]:
        return None
    try:
        numbers = [int(words[at]) for at in (1, 2, 6, 7)]
        place = int(words[8]) if len(words) > 8 else -1
    except ValueError:
        return None
    return (*numbers, words[4], words[5], place)


def read_next(text: str) -> tuple[object, ...] | None:
    try:
        handle = read_handle(text)
    except RpcError:
        return None
    pop = handle.pop
    assert handle.text == text and pop.visible_ms == pop.pop_time + pop.invisible_time
    return (
        pop.pop_time, pop.invisible_time, pop.queue_id, handle.offset, pop.kind, pop.broker, handle.place,
    )  # fmt: skip


@given(st.lists(HANDLES, max_size=6))
@example([f"{SOUND} 17 1", f"{SOUND} 18", f"{SOUND} ", f"{SOUND}1 5 9", SOUND, f"{SOUND} 19 "])
def test_a_handle_says_the_same_after_any_other(handles: list[str]) -> None:
    for text in handles:
        assert read_next(text) == read_alone(text)


def test_what_acknowledgements_of_a_pop_may_share() -> None:
    first = read_handle(f"{SOUND} 17 1")
    assert read_handle(f"{SOUND} 18").pop is first.pop
    orderly = read_handle("5 1 60000 999 0 b 3 17")
    assert (first.pop.start, first.pop.revive_queue) == (0, 2)
    assert (orderly.pop.start, orderly.pop.revive_queue) == (5, -1)
    assert read_handle("x 1 60000 -2 0 b 3 17").pop.start < 0
