"""Rows beside those of Spark itself (from_json, casts) and of Debezium's unwrapping, over generated bodies."""

import json
import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.pipelines.rows.test_decoder import messages
from tests.pipelines.rows.test_json_bodies import array, map_of, struct
from tests.pipelines.rows.test_json_rows import ODD

from roquette_spark.pipelines.rows.json_rows import JsonReader
from roquette_spark.pipelines.state.change_rows import ChangeForm, ChangeRows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PLAIN = struct(
    n="long",
    i="integer",
    s="short",
    b="boolean",
    d="double",
    f="float",
    money="decimal(9,2)",
    name="string",
    day="date",
    at="timestamp",
    list=array("long"),
    inner=struct(n="integer", name="string"),
    objects=array(struct(n="long")),
    texts=map_of("string"),
)
TEXTS = ["", "a", "größe", "1", "true", "NaN", "Infinity", "12.5", "1,000.5", "2023-02-01", "2023-02-30", "2023-2-1", "2023-02-01T10:00:00Z",
    "2023-02-01 10:00:00.123456", "2023-02-01T10:00:00+02:00", "10:00", "\u2028", "\\", '"', "{}", "null"]  # fmt: skip
ISO = ["2023-02-01", "2023-02-01T10:00:00Z", "2023-02-01 10:00:00.123456"]
NUMBERS = ["0", "-1", "7", "40000", "2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 30, "1.0", "19.0", "1.5", "0.1", "-0.0",
    "1e3", "1e-3", "1.005", "1234567.89", "12345678.9", "1e38", "3.5e38", "1e300", "1e400"]  # fmt: skip


def value(chance: random.Random, depth: int = 0) -> str:
    """A value of JSON, as text."""
    kind = chance.randrange(7 if depth < 3 else 5)
    if kind == 0:
        return chance.choice(["null", "true", "false"])
    if kind in (1, 2):
        return chance.choice(NUMBERS)
    if kind in (3, 4):
        return json.dumps(chance.choice(TEXTS), ensure_ascii=chance.random() < 0.5)
    if kind == 5:
        return "[" + ",".join(value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    return body(chance, depth + 1)


FITTING = {
    "n": ["1", "-7", "19.0"], "i": ["5"], "s": ["7"], "b": ["true"], "d": ["1.5", "2", '"NaN"'], "f": ["0.5", "0.1"], "money": ["1.5", '"12.50"', "7"],
    "name": ['"x"', "1.10", '{"a":1}'], "day": ['"2023-02-01"'], "at": ['"2023-02-01T10:00:00.5+02:00"', "1675245600"], "list": ["[1,2,null]"],
    "inner": ['{"n":1,"name":"y"}', '{"n":2}'], "objects": ['[{"n":1},null]'], "texts": ['{"a":"b","c":1}'],
}  # fmt: skip


def body(chance: random.Random, depth: int = 0) -> str:
    """An object; half of its fields are as their columns want them."""
    fields = {}
    for name in chance.sample([*FITTING, "late", "x"], chance.randrange(6)):
        good = depth == 0 and name in FITTING and chance.random() < 0.6
        fields[name] = chance.choice(FITTING[name]) if good else value(chance, depth)
    blank = chance.choice(["", " ", "\n"])
    items = ",".join(f"{json.dumps(name)}:{blank}{text}" for name, text in fields.items())
    return "{" + items + "}"


def spoilt(chance: random.Random, text: str) -> bytes:
    """Mostly the text; else it is cut, repeated, or has a byte of another kind."""
    data, how = text.encode(), chance.random()
    if how < 0.9 or not data:
        return data
    at = chance.randrange(len(data))
    return chance.choice([data[:at], data + data, data[:at] + b"\xff" + data[at:], b"[" + data + b"]", chance.choice(ODD)])  # fmt: skip


def exact(found: Any) -> Any:
    return json.loads(found, parse_float=Decimal, parse_int=Decimal, parse_constant=str)


def same(mine: Any, theirs: Any) -> bool:
    """By value; JSON within texts may have its numbers and blanks in another way."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[n], theirs[n]) for n in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, datetime) and isinstance(theirs, datetime):
        return mine.astimezone(UTC).replace(tzinfo=None) == theirs
    if isinstance(mine, str) and isinstance(theirs, str) and mine != theirs:
        return loose(json.loads(mine)) == loose(json.loads(theirs))
    return repr(mine) == repr(theirs)


def loose(found: Any) -> Any:
    """Numbers beyond doubles by the name that Spark gives them within texts."""
    if isinstance(found, dict):
        return {name: loose(each) for name, each in found.items()}
    if isinstance(found, list):
        return [loose(each) for each in found]
    return "Infinity" if found == float("inf") else found


def may_differ(kind: Any, given: Any, theirs: Any) -> bool:
    """Whether Spark takes a value that its column cannot hold as it is, or a time of another form: that is rescued instead."""
    if isinstance(kind, dict):
        return True  # a part of it is one of those
    if kind.startswith("decimal"):
        return not isinstance(given, Decimal) or theirs != given
    if kind in ("double", "float"):
        return theirs in (float("inf"), float("-inf"))
    return kind in ("date", "timestamp") and given not in ISO


def compare(spark: Any, count: int, seed: int) -> dict[str, int]:
    """Every field by itself, since from_json gives a body up at the first that does not fit; how many, by outcome."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    chance = random.Random(seed)
    seen = {"bad": 0, "in columns": 0, "rescued": 0, "changed by Spark": 0}
    some = [spoilt(chance, body(chance)) for _ in range(count)]
    reader = JsonReader(json.dumps(PLAIN))
    found = reader.read(pa.array(some, pa.binary()))
    table = pa.Table.from_arrays(found.columns, names=reader.schema.names)
    rows = table.to_pylist(maps_as_pydicts="strict")
    rescued = [None] * count if found.rescued is None else found.rescued.to_pylist()
    kinds = {each["name"]: each["type"] for each in PLAIN["fields"]}
    texts = {}
    for at, error in enumerate(found.errors.to_pylist()):
        seen["bad"] += error is not None
        if error is None:
            fields = fields_of(some[at].decode())
            texts |= {(at, name): text for name, text in fields.items() if name in kinds}
    frame = spark.createDataFrame(
        [(at, name, f'{{"{name}":{text}}}') for (at, name), text in texts.items()],
        "place int, field string, body string",
    )
    schema = StructType.fromJson(PLAIN).add("_corrupt", "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    parsed = frame.select("place", "field", f.from_json("body", schema, options).alias("p"))
    for at, name, whole in parsed.toLocalIterator():
        theirs, corrupt = plain(whole[name]), whole["_corrupt"] is not None
        mine, text = rows[at][name], texts[at, name]
        if name not in (exact(rescued[at]) if rescued[at] else {}):
            seen["in columns"] += 1
            fits_after_all = corrupt and re.search(r"\d[.eE]", text)  # 19.0 for a whole number
            assert fits_after_all or (not corrupt and same(mine, theirs)), (
                name,
                text,
                mine,
                theirs,
            )
        else:
            seen["rescued"] += 1
            assert corrupt or may_differ(kinds[name], exact(text), theirs), (name, text, theirs)
            seen["changed by Spark"] += not corrupt
    return seen


def plain(found: Any) -> Any:
    if hasattr(found, "asDict"):
        return {name: plain(each) for name, each in found.asDict().items()}
    if isinstance(found, list):
        return [plain(each) for each in found]
    return found


def fields_of(text: str) -> dict[str, str]:
    """The fields of an object as they are written."""
    decoder, found = json.JSONDecoder(), {}
    at = text.index("{") + 1
    while text[at:].strip()[:1] not in ("}", ""):
        at = text.index('"', at)
        name, at = json.decoder.scanstring(text, at + 1)
        at = text.index(":", at) + 1
        at += len(text[at:]) - len(text[at:].lstrip())
        _, end = decoder.raw_decode(text, at)
        found[name], at = text[at:end], end
        at = at + len(text[at:]) - len(text[at:].lstrip(" \n\t\r,"))
    return found


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(100_000, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_fields_are_what_spark_makes_of_them_or_rescued(spark: Any, count: int) -> None:
    seen = compare(spark, count, 7)

    assert min(seen.values()) > count / 200, seen
    assert seen["in columns"] > count, seen


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(100_000, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_changes_are_what_debezium_unwraps(count: int) -> None:
    """As ExtractNewRecordState does: the row is `after`; without one the event is a deletion, of the key in `before`."""
    chance = random.Random(8)
    row = struct(id="integer", name="string", n="long")
    form = ChangeForm(json.dumps(struct(before=row, after=row, op="string", ts_ms="long")), ("id",), "", "", "debezium")  # fmt: skip

    def side() -> Any:
        whole = {"id": chance.choice([1, 2, None]), "name": chance.choice(["a", None]), "n": chance.choice([1, None, 2**40])}  # fmt: skip
        return chance.choice([None, whole, {name: whole[name] for name in chance.sample(list(whole), 2)}])  # fmt: skip

    events = [{"before": side(), "after": side(), "op": chance.choice("cru"), "ts_ms": chance.choice([None, 5])} for _ in range(count)]  # fmt: skip
    for event in events:
        if event["after"] is None:
            event["op"] = "d"
    wanted = []
    for at, event in enumerate(events):
        unwrapped = event["before"] if event["after"] is None else event["after"]
        if (unwrapped or {}).get("id") is not None:
            wanted.append((at, *(unwrapped.get(name) for name in ("id", "name", "n")), event["ts_ms"], event["after"] is None))  # fmt: skip

    decoded = ChangeRows(form).decode(messages(*(json.dumps(event).encode() for event in events)))

    names = ["_queue_offset", "id", "name", "n", "_version", "deleted"]
    assert [tuple(each.values()) for each in decoded.good.select(names).to_pylist()] == wanted
    assert decoded.bad is not None
    assert decoded.bad.num_rows == count - len(wanted)
    assert set(decoded.bad.column("error").to_pylist()) == {"a column of the key is null"}
