"""The address grammar of ACL 1.0's white lists."""

import pytest

from roquette.access.plain.addresses import Addresses, parts_of

LISTS = [
    ("*", "1.2.3.4 ::1 2001:db8::7", ""),
    ("*.*.*.*", "1.2.3.4", ""),
    ("*:*:*:*:*:*:*:*", "1.2.3.4 ::1", ""),
    ("127.0.0.1", "127.0.0.1 ::ffff:127.0.0.1", "127.0.0.2 127.0.0.10 ::1"),
    ("127.0.0.1,127.0.0.3", "127.0.0.1 127.0.0.3", "127.0.0.2"),
    ("127.0.0.{1,2,33}", "127.0.0.1 127.0.0.2 127.0.0.33", "127.0.0.3 127.0.0.0"),
    ("10.10.103.*", "10.10.103.0 10.10.103.255", "10.10.104.1 10.101.03.1"),
    ("10.1.2.9-11", "10.1.2.9 10.1.2.11", "10.1.2.8 10.1.2.12 10.1.2.110"),
    ("127.0.1-20.*", "127.0.1.0 127.0.20.9", "127.0.0.1 127.0.21.1"),
    ("192.100-150.*.*", "192.100.1.1 192.150.255.0", "192.99.1.1 193.120.1.1"),
    ("::1", "::1 0:0:0:0:0:0:0:1 ::1%eth0", "::2 127.0.0.1"),
    ("1050:0:0:0:5:600:300c:326B", "1050::5:600:300C:326b", "1050::5:600:300C:326c"),
    ("1050::5:600:300c:{1,2}", "1050::5:600:300c:1 1050::5:600:300c:2", "1050::5:600:300c:3"),
    ("2::ac5:78:1-200:*", "2::ac5:78:1:ffff 2::ac5:78:200:0", "2::ac5:78:201:0 2::ac5:79:1:0"),
    ("1050::5:600:300c:3261:1-20", "1050::5:600:300c:3261:20", "1050::5:600:300c:3261:21"),
    ("1050:5:600:300c:3261:*", "1050:5:600:300c:3261:7:8:9", "1050:5:600:300c:3262:7:8:9"),
    ("", "", "1.2.3.4 ::1"),
]  # fmt: skip


@pytest.mark.parametrize("text, inside, outside", LISTS)
def test_who_is_in_a_list(text: str, inside: str, outside: str) -> None:
    found = Addresses([text])
    assert all(found.has(ip) for ip in inside.split())
    assert not any(found.has(ip) for ip in outside.split())
    assert not found.has("") and not found.has("nobody") and not found.has("1.2.3.4.5")


BAD = """10.0.0.0/8 256.0.0.1 1.2.3 1.2.3.4.5 ::1ggg 127.0.0.1,2,3} {192.168.1} {192.168.1.1} 192.168.{1} 1.2.3.4-
 1.2.3.-4 1.2.3.9-4 1.2.3.1-256 *.1.2.3 host 1.2.3.4,10.* 1.2.3.{} 1.2.3.{1,300} 1.2.3.{1,{2}} 2::*:1:2 1-2::1:2:3
 2:1-ffffff::1 1:2:3:4:5:6:7:8:* 1::2::* :::* 1.2.3.4,,1.2.3.5 ²5.1.1.* 1.2.3.² 1:2:3-5"""


@pytest.mark.parametrize("text", BAD.split())
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Addresses([text])


def test_each_part_means_what_it_says() -> None:
    """Apache compares no further than to the first '*' or range: it lets 10.1.9.9 in here."""
    assert not Addresses(["10.1-3.*.7"]).has("10.1.9.9")
    assert Addresses(["10.1-3.*.7"]).has("10.1.9.7")


def test_an_address_has_one_form() -> None:
    assert parts_of("::ffff:10.0.0.1") == (10, 0, 0, 1) == parts_of("10.0.0.1")
    assert parts_of("01.2.3.4") == (1, 2, 3, 4) and parts_of("1.2.3.999") is None
