"""Expectations of rows by pandera's schemas: which rows do not meet which, what is refused."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipelines.rows.test_decoder import COLUMNS, messages

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.rows.decoder import Decoded, Decoder
from roquette_spark.pipelines.rows.expectations import (
    Expectations,
    read_expectations,
    reasons_of,
)
from roquette_spark.pipelines.rows.tasks import BatchWork, Written, body_reader, write_messages

SCHEMA = """
schema_type: polars_dataframe
version: 0.35.0
columns:
  n:
    nullable: false
    checks: {in_range: {min_value: 0, max_value: 9}}
  at:
    nullable: true
    required: false
    checks: {str_length: {min_value: 4, max_value: 20}}
coerce: false
unique: null
"""
BODIES = (b'{"n":1}', b'{"n":-1,"at":"x"}', b'{"at":"2023"}', b"no object", b'{"n":9}')


def decode(*, mark: bool) -> Decoded:
    form = RowForm("json", COLUMNS, marks=mark)
    return Decoder(form, body_reader(form), Expectations(SCHEMA), mark=mark).decode(
        messages(*BODIES)
    )


def test_each_row_is_judged_by_each_expectation() -> None:
    expected = Expectations(SCHEMA)
    rows = pa.table({"n": [1, -1, None], "at": ["2023", "x", None], "more": [1, 2, 3]})

    found = expected.judge(rows)

    assert expected.names == ["n: not_nullable", "n: in_range(0, 9)", "at: str_length(4, 20)"]
    assert {name: mask.to_pylist() for name, mask in found.items()} == {
        "n: not_nullable": [False, False, True],
        "n: in_range(0, 9)": [False, True, False],
        "at: str_length(4, 20)": [False, True, False],
    }
    assert reasons_of(found, 3).to_pylist() == [
        None,
        "n: in_range(0, 9); at: str_length(4, 20)",
        "n: not_nullable",
    ]
    assert expected.judge(rows.slice(0, 1)) == {}
    assert expected.judge(rows.slice(0, 0)) == {}


def test_a_column_that_is_not_there_or_of_another_type_is_met_by_no_row() -> None:
    text = "columns: {gone: {required: true}, n: {dtype: String, nullable: true}}"

    found = Expectations(text).judge(pa.table({"n": [1, 2]}))

    assert {name: mask.to_pylist() for name, mask in found.items()} == {
        "gone: column_in_dataframe": [True, True],
        "n: dtype('String')": [True, True],
    }


def test_rows_that_are_not_as_expected_are_quarantined_whole() -> None:
    found = decode(mark=False)

    assert found.bad is not None
    assert found.good.column("n").to_pylist() == [1, 9]
    assert dict(
        zip(found.bad["body"].to_pylist(), found.bad["error"].to_pylist(), strict=True)
    ) == {
        BODIES[1]: "not as expected: n: in_range(0, 9); at: str_length(4, 20)",
        BODIES[2]: "not as expected: n: not_nullable",
        BODIES[3]: "the body is no JSON object",
    }
    assert "_unmet" not in found.good.column_names
    assert found.unmet == Counter(
        {"n: in_range(0, 9)": 1, "at: str_length(4, 20)": 1, "n: not_nullable": 1}
    )


def test_or_they_stay_and_are_marked() -> None:
    found = decode(mark=True)

    assert found.bad is not None and found.bad["body"].to_pylist() == [BODIES[3]]
    assert found.good.column("n").to_pylist() == [1, -1, None, 9]
    assert found.good.column("_unmet").to_pylist() == [
        None,
        "n: in_range(0, 9); at: str_length(4, 20)",
        "n: not_nullable",
        None,
    ]


def test_counts_of_tasks_are_added_up(tmp_path: Path) -> None:
    form = RowForm("json", COLUMNS)
    places = str(tmp_path / "T"), str(tmp_path / "T.quarantine")
    work, total = BatchWork(7, {}, form, *places, expect=SCHEMA), Written()
    for attempt in ("a", "b"):
        total.add(write_messages(work, iter([messages(*BODIES)] * 2), attempt))

    assert (total.rows, total.bad_rows, total.unmet["n: not_nullable"]) == (8, 12, 4)


def test_a_form_that_marks_nothing_is_kept_as_before() -> None:
    plain, marking = RowForm("json", COLUMNS), RowForm("json", COLUMNS, marks=True)

    assert "marks" not in plain.settings()
    assert RowForm.of_settings(plain.settings()) == plain
    assert RowForm.of_settings(marking.settings()) == marking


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no columns"),
        ("columns: [n]", "has no columns"),
        ("columns: {n: {unique: true}}", "column n: unique is not for rows one by one"),
        ("columns: {n: {coerce: true}}", "column n: coerce"),
        ("columns: {n: {}}\nstrict: true", "strict"),
        ("columns: {n: {checks: {no_such_check: 1}}}", "is no schema of pandera"),
        ("columns: {n: {dtype: Whatever}}", "is no schema of pandera"),
        ("a: [", "--expect"),
    ],
)
def test_what_is_no_schema_for_rows_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "expect.yml").write_text(text)

    with pytest.raises(ConfigError, match=why):
        read_expectations(str(tmp_path / "expect.yml"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yml cannot be read"):
        read_expectations(str(tmp_path / "nowhere.yml"))


def test_pandera_changes_nothing_that_arrow_and_spark_look_at() -> None:
    code = (
        "import os\n"
        "from datetime import datetime, timedelta, timezone\n"
        "import pyarrow as pa\n"
        "from roquette_spark.pipelines.rows.expectations import Expectations\n"
        "Expectations('columns: {n: {}}')\n"
        "at = datetime(2023, 11, 14, 23, tzinfo=timezone(timedelta(hours=-3)))\n"
        "print(pa.array([at], pa.timestamp('us', 'UTC'))[0].as_py().hour)\n"
        "print([name for name in ('PYARROW_IGNORE_TIMEZONE', 'SPARK_LOCAL_IP') if name in os.environ])"
    )
    names = ("PYARROW_IGNORE_TIMEZONE", "SPARK_LOCAL_IP")
    environ = {name: value for name, value in os.environ.items() if name not in names}

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=90, check=False, env=environ,
    )  # fmt: skip

    assert done.stdout == "2\n[]\n", done.stderr


def test_without_expectations_nothing_of_pandera_is_imported() -> None:
    code = (
        "import sys, roquette_spark.pipelines.archive.pipeline, roquette_spark.pipelines.rows.tasks\n"
        "print([name for name in ('pandera', 'polars', 'openlineage', 'pandas') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")
