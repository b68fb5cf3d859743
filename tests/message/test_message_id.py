"""Message ids and host bytes."""

import pytest

from roquette.errors import CorruptRecord
from roquette.message.message_id import (
    UniqueIds,
    decode_offset_message_id,
    host_bytes,
    host_text,
    offset_message_id,
)

NOVEMBER_2023 = 1_698_796_800_000  # 2023-11-01T00:00:00Z


def test_an_offset_id_names_host_and_offset() -> None:
    host = host_bytes("127.0.0.1", 10911)

    assert offset_message_id(host, 0) == "7F00000100002A9F0000000000000000"
    assert decode_offset_message_id("7F00000100002A9F0000000000000FFF") == (host, 4095)


def test_an_ipv6_offset_id_has_56_digits() -> None:
    host = host_bytes("2001:db8::1", 10911)
    text = offset_message_id(host, 1 << 40)

    assert len(text) == 56
    assert decode_offset_message_id(text) == (host, 1 << 40)


@pytest.mark.parametrize(
    "text", ["", "7F", "Z" * 32, "7F00000100002A9F000000000000000 ", "7" * 57, "７" * 32, " 7" * 16]
)
def test_other_texts_are_no_offset_ids(text: str) -> None:
    with pytest.raises(ValueError):
        decode_offset_message_id(text)


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("1.2.3.4", 10911, "1.2.3.4:10911"),
        ("::1", 1, "[::1]:1"),
        ("[2001:db8::1]", 2, "[2001:db8::1]:2"),
        ("::ffff:1.2.3.4", 5, "1.2.3.4:5"),
    ],
)
def test_hosts_become_bytes_and_text(host: str, port: int, text: str) -> None:
    assert host_text(host_bytes(host, port)) == text


def test_host_bytes_wants_an_address_and_a_port() -> None:
    for host, port in [("localhost", 1), ("1.2.3.4", 65536), ("1.2.3", 1)]:
        with pytest.raises(ValueError):
            host_bytes(host, port)
    with pytest.raises(CorruptRecord):
        host_text(b"123456")


def test_a_unique_id_is_laid_out_as_javas() -> None:
    ids = UniqueIds(bytes([10, 0, 0, 1]), 0x1_2345, 0x18B4AAC2)

    assert (
        ids.next_id(NOVEMBER_2023 + 0x1234)
        == "0A000001" + "2345" + "18B4AAC2" + "00001234" + "0000"
    )
    assert ids.next_id(NOVEMBER_2023 + 0x1235).endswith("000012350001")


def test_the_month_rolls_and_the_counter_wraps() -> None:
    ids = UniqueIds(bytes(4), 1, 1)
    first = [ids.next_id(NOVEMBER_2023 - 1) for _ in range(65_536)]

    assert len(set(first)) == 65_536
    assert ids.next_id(NOVEMBER_2023).endswith("000000000000")
    assert ids.next_id(NOVEMBER_2023 - 1) == first[1]


def test_many_ids_at_once_are_those_that_come_one_by_one() -> None:
    one, many = (UniqueIds(bytes(4), 7, 9) for _ in range(2))
    for count in (3, 0, 1, 65_534, 5, 65_536, 2):  # over the counter's end, too
        assert many.next_ids(NOVEMBER_2023, count) == [
            one.next_id(NOVEMBER_2023) for _ in range(count)
        ]
    assert many.next_id(NOVEMBER_2023 + 1) == one.next_id(NOVEMBER_2023 + 1)
    with pytest.raises(ValueError, match="65,536"):
        many.next_ids(NOVEMBER_2023, 65_537)
