"""However messages are cut into batches, the table has the same rows and the quarantine the same messages."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipelines.rows.test_decoder import messages
from tests.pipelines.rows.test_json_bodies import KNOWN, array, bodies, struct, values

from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.rows.decoder import Decoder, widened
from roquette_spark.pipelines.rows.json_rows import JsonReader

NARROW = struct(
    n="integer",
    small="short",
    f="float",
    money="decimal(6,2)",
    inner=struct(n="integer", list=array("integer")),
    **{"a.b": "long"},
)
numbers = st.sampled_from([0, 1, -1, 2**15, 2**31, 2**40, 2**63, 10**20, 1.5, 10.5, 1e300, 0.1, 123456.78, 1.005])  # fmt: skip
odd = st.one_of(numbers, values)
names = st.sampled_from(["n", "small", "f", "money", "inner", "a.b", "a", "b", "N", "list", "x y", "dt", "late", "element"])  # fmt: skip
nested = st.one_of(odd, st.dictionaries(names, odd, max_size=3), st.lists(odd, max_size=2))
objects = st.one_of(bodies, st.dictionaries(names, nested, max_size=5))
BAD = [b"", b"[]", b"{", b'{"n":1,"n":2}', b"\xff", b'{"n":NaN}', b'{"money":"NaN"}']
some_bodies = st.lists(
    st.one_of(objects.map(lambda body: json.dumps(body).encode()), st.sampled_from(BAD)),
    min_size=1,
    max_size=8,
)


def archive(schema: Any, some: Sequence[bytes], cuts: Sequence[int]) -> tuple[Any, ...]:
    """The columns at the end, rows without what is null, and what is in quarantine."""
    rows, bad = [], []
    for start, end in zip([0, *cuts], [*cuts, len(some)], strict=True):
        batch = messages(*some[start:end])
        while True:
            form = RowForm("json", json.dumps(schema))
            reader = JsonReader(form.body_schema)
            decoded = Decoder(form, reader).decode(batch)
            wider = widened(schema, reader.news)
            if wider == schema:
                break
            schema = wider
        for row in decoded.good.to_pylist(maps_as_pydicts="strict"):
            left = json.loads(row["_rescued"] or "{}", parse_float=str)
            body = {name: each for name, each in row.items() if name[:1] != "_" and name != "dt"}
            rows.append((start + row["_queue_offset"], filled(body), filled(left)))
        assert decoded.bad is not None
        bad += [(start + row["queue_offset"], row["error"]) for row in decoded.bad.to_pylist()]
    return schema, rows, bad


def filled(value: Any) -> Any:
    """Without what says nothing (null, [], {}, and their texts): such a field gets no column, so it is rescued until another message
    brings one.
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):
            return value if filled(json.loads(value)) is not None else None
    if isinstance(value, dict):
        kept = {name: filled(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None} or None
    if isinstance(value, list):
        found = [filled(each) for each in value]
        return found if any(each is not None for each in found) else None
    return value


@settings(max_examples=settings.default.max_examples * 4, deadline=None)
@given(st.sampled_from([NARROW, KNOWN, struct()]), some_bodies, st.data())
def test_any_split_gives_the_same_table(schema: Any, some: list[bytes], data: Any) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(some)), max_size=4)) - {len(some)}

    whole, parts = archive(schema, some, []), archive(schema, some, sorted(cuts))
    assert repr(parts) == repr(whole)  # nan is not nan
