"""However changes are cut into batches, the table has the same rows and the quarantine the same messages."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipelines.rows.test_decoder import messages
from tests.pipelines.rows.test_json_bodies import struct
from tests.pipelines.rows.test_splits import BAD, odd
from tests.pipelines.state.test_buckets import State, by_duckdb

from roquette_spark.pipelines.state.bucket_files import BucketRules
from roquette_spark.pipelines.state.change_rows import ChangeForm, ChangeRows

FORM = ChangeForm(
    json.dumps(struct(id="integer", v="long", op="string", name="string", f="float", m="decimal(6,2)")),
    ("id",),
    "v",
    "op = 'd'",
    "none",
)  # fmt: skip
changes = st.fixed_dictionaries(
    {"id": st.sampled_from([1, 2, 3, None, "x", 2**40])},
    optional={
        "v": st.sampled_from([0, 1, 2, 3, None, 1.5, "2"]),
        "op": st.sampled_from(["d", "u"]),
        "name": st.text(max_size=3),
        "f": odd,
        "m": odd,
        "more": odd,
    },
)
some_bodies = st.lists(
    st.one_of(changes.map(lambda body: json.dumps(body).encode()), st.sampled_from(BAD)),
    min_size=1,
    max_size=12,
)


def current(root: Path, some: Sequence[bytes], cuts: Sequence[int]) -> tuple[Any, ...]:
    """The rows, and what is in quarantine."""
    reader = ChangeRows(FORM)
    rules = BucketRules(share=0.4, small_rows=len(some) % 3, most_files=3, bucket_rows=2)
    schema = reader.decode(messages()).good.schema
    state, bad = State(root, ("id",), rules, schema), []
    for start, end in zip([0, *cuts], [*cuts, len(some)], strict=True):
        batch = messages(*some[start:end])
        at = batch.schema.get_field_index("queue_offset")
        offsets = pa.array(range(start, end), pa.int64())
        decoded = reader.decode(batch.set_column(at, batch.schema.field(at), offsets))
        assert decoded.bad is not None
        bad += [(row["queue_offset"], row["error"]) for row in decoded.bad.to_pylist()]
        state.apply_table(decoded.good)
    found = sorted(
        (r["id"], r["_queue_offset"], repr(r["name"]), repr(r["f"]), r["m"], r["_rescued"])
        for r in by_duckdb(state)
    )
    return found, bad


@settings(max_examples=30, deadline=None)
@given(some=some_bodies, seed=st.integers(0, 2**32))
def test_any_split_of_the_changes_gives_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, some: list[bytes], seed: int
) -> None:
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(1, len(some)), chance.randrange(len(some))))
    folder = tmp_path_factory.mktemp("split")
    whole = current(folder / "whole", some, [])
    parts = current(folder / "parts", some, cuts)
    assert whole == parts
