"""The record of a group as it is stored."""

import pytest

from roquette.errors import AgreementError
from roquette.replication.record import (
    GroupRecord,
    MemberPlace,
    decode_record,
    is_record_key,
    record_key,
)

ONE, TWO = (
    MemberPlace(address="a:1", ha_address="a:2"),
    MemberPlace(address="b:1", ha_address="b:2"),
)


def test_it_is_read_as_it_was_written() -> None:
    record = GroupRecord(
        number=3, master=2, places={2: TWO, 1: ONE}, doubtful={2: (1, 7), 1: (0, 5)}
    )

    assert decode_record(record.encode()) == record


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"number":"x"}', b'{"places":{"a":1}}', b'{"group":"\xd8"}']
)
def test_what_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(AgreementError, match="not readable"):
        decode_record(data)


@pytest.mark.parametrize(
    "key",
    [
        "roquette/c",
        "roquette//b",
        "roquette/c/",
        "roquette/c/b/",
        "roquette/c/b/x",
        "x/c/b",
        "",
        "/roquette/c/b",
    ],
)
def test_a_key_of_no_group_is_none(key: str) -> None:
    assert is_record_key(record_key("DefaultCluster", "broker-a"))
    assert not is_record_key(key)
