"""Who has left: remembered for a day, within bounds, until it is back, replaced or forgotten."""

import pytest

from roquette.nameserver.floor.config import LEFT_BROKERS
from roquette.nameserver.floor.identity import BrokerIdentity
from roquette.nameserver.floor.route_table import KEPT_MS, REFUSED_MS, Departed
from roquette.wire.bodies import ENDED, LOST, REFUSED, BrokerLeft


def who(number: int = 1, name: str = "a", broker_id: int = 0) -> BrokerIdentity:
    return BrokerIdentity("c", name, f"10.0.1.{number}:10911", broker_id)


def test_it_tells_where_how_and_how_long_ago() -> None:
    table = Departed()
    table.note(who(), ENDED, 1_000)
    table.note(who(2, "b", 1), LOST, 3_000)

    assert table.all(5_000) == [
        BrokerLeft("c", "a", 0, "10.0.1.1:10911", ENDED, 4_000),
        BrokerLeft("c", "b", 1, "10.0.1.2:10911", LOST, 2_000),
    ]


def test_a_day_later_it_is_forgotten_and_a_refusal_after_a_minute() -> None:
    table = Departed()
    table.note(who(), LOST, 0)
    table.note(who(2), REFUSED, 0, "10.0.1.2")

    assert [left.why for left in table.all(REFUSED_MS)] == [LOST, REFUSED]
    assert [left.why for left in table.all(REFUSED_MS + 1)] == [LOST]
    assert table.all(KEPT_MS)
    assert table.all(KEPT_MS + 1) == []


@pytest.mark.parametrize(
    ("comes", "elects", "missed"),
    [
        (who(), False, []),
        (who(9), False, []),  # of the same name and id, on another machine
        (who(9), True, [LOST]),  # a member of its group has its id now
        (who(), True, []),
        (who(9, "a", 1), False, [LOST]),
        (who(9, "z"), False, [LOST]),
    ],
)
def test_it_is_missed_until_it_or_one_in_its_place_is_there(
    comes: BrokerIdentity, elects: bool, missed: list[str]
) -> None:
    table = Departed()
    table.note(who(), LOST, 0)
    table.came(comes, elects)

    assert [left.why for left in table.all(1)] == missed


def test_one_that_is_refused_is_told_until_it_is_taken_and_no_other_ends_that() -> None:
    table = Departed()
    table.note(who(2), REFUSED, 0, "10.0.1.2")
    table.came(who(1), elects=False)
    assert table.all(1)
    table.came(who(2), elects=False)
    assert table.all(1) == []


def test_no_more_than_its_bound_and_the_newest_of_them() -> None:
    table = Departed()
    for number in range(LEFT_BROKERS + 5):
        table.note(who(number), LOST, number)
    found = table.all(LEFT_BROKERS)

    assert len(found) == LEFT_BROKERS
    assert found[0].broker_addr == "10.0.1.5:10911"
    table.note(who(7), LOST, 5_000)  # once more: the newest now
    assert table.all(5_000)[-1].broker_addr == "10.0.1.7:10911"
    assert len(table.all(5_000)) == LEFT_BROKERS


def test_what_an_operator_forgets() -> None:
    table = Departed()
    table.note(who(), LOST, 0)
    table.forget(who(2).key)
    assert table.all(0)
    table.forget(who().key)
    assert table.all(0) == []
