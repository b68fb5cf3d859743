"""Mutated frames of every request code of both servers: see mutated_world.py for what is checked after each run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.bad_input import mutated_world
from tests.bad_input.mutated_world import World, attack_broker, attack_name_server
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS, ext_of, header_of

from roquette.message.properties import encode_properties
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import decode_ext, encode_dict

ATTACKS = {"broker": (attack_broker, BROKER_ROWS), "namesrv": (attack_name_server, NAMESRV_ROWS)}
Attack = Callable[[Path, int, int], World]


@pytest.mark.promise("Peers", "mutated frames of every request code disturb nothing")
@pytest.mark.parametrize("name", ATTACKS)
def test_ten_thousand_frames_disturb_nothing(name: str, tmp_path: Path) -> None:
    attack, rows = ATTACKS[name]
    world = attack(tmp_path, 10_000, 1)
    assert world.sent >= 10_000
    assert world.sent // len(rows) > 90, "frames of every code"
    assert world.answers > world.sent // 4, "most get as far as a processor"


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2, 22))  # 20 seeds, 2 servers, 25,000 each
@pytest.mark.parametrize("name", ATTACKS)
def test_a_million_frames_disturb_nothing(name: str, seed: int, tmp_path: Path) -> None:
    ATTACKS[name][0](tmp_path, 25_000, seed)


@pytest.mark.parametrize("row", BROKER_ROWS + NAMESRV_ROWS, ids=lambda row: str(row.code))
def test_every_row_has_a_legal_sample(row: Any) -> None:
    header = header_of(row)
    if header is not None:
        ext = ext_of(row)
        found = decode_ext(header, msgspec.Raw(encode_dict(ext)))
        known = {field.encode_name for field in msgspec.structs.fields(header)}
        assert found is not None and set(ext) <= known


def test_python_words_are_seen() -> None:
    for remark in ("ValueError: x", "int too large to convert", "'utf-8' codec can't decode byte"):
        assert mutated_world.PYTHON_WORDS.search(remark)
    assert not mutated_world.PYTHON_WORDS.search("topic[T] not exist, apply first please!")


def test_a_separator_in_a_value_adds_no_property() -> None:
    named = {"UNIQ_KEY": "T@0@x\2DELAY\0013\2", "TAGS": "ck"}
    assert encode_properties(named).split("\2") == ["UNIQ_KEY\1T@0@xDELAY\0013", "TAGS\1ck", ""]
    assert named["UNIQ_KEY"] == "T@0@xDELAY\0013", "who indexes it indexes what is stored"


def test_ext_fields_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    send = next(row for row in BROKER_ROWS if row.code == RequestCode.SEND_MESSAGE)
    header = header_of(send)
    assert header is not None
    ext = encode_dict(ext_of(send)).replace(b"TBW102", b"TBW\xff")
    assert decode_ext(header, msgspec.Raw(ext)).default_topic == "TBW�"  # type: ignore[attr-defined]
