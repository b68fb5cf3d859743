"""The group table."""

from roquette.broker.floor.tables.groups import GroupTable
from roquette.wire.bodies import SubscriptionGroupConfig


def test_an_unknown_group_is_created_when_first_seen():
    groups = GroupTable(0)
    told = []
    groups.changed.append(told.append)

    assert groups.find("g", 5).retry_max_times == 16
    assert told == ["g"]
    assert groups.data_version.counter == 1


def test_nothing_is_created_when_switched_off_or_for_a_bad_name():
    off = GroupTable(0, lambda: False)
    on = GroupTable(0)

    assert off.find("g", 5) is None
    assert on.find("a/b", 5) is None
    assert on.known("g") is None


def test_system_groups_are_there_from_the_start():
    names = {group.group_name for group in GroupTable(0).all()}

    assert {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "CID_RMQ_SYS_TRANS"} <= names
    assert len(names) == 8


def test_forbidden_bits_belong_to_one_topic():
    groups = GroupTable(0)
    groups.set_forbidden("g", "T", 4, 1)

    assert groups.forbidden("g", "T")
    assert not groups.forbidden("g", "U")
    groups.set_forbidden("g", "T", 0, 1)
    assert not groups.forbidden("g", "T")


def test_deleted_groups_are_gone_and_the_version_moves():
    groups = GroupTable(0)
    groups.put(SubscriptionGroupConfig(group_name="g"), 1)

    assert groups.delete("g", 2) is True
    assert groups.delete("g", 2) is False
    assert groups.data_version.counter == 2
