"""Expectations of rows: checks of pandera, in its own YAML of a schema, applied by tasks before rows are written.

No language of ours: `columns`, and for each `nullable`, `required`, `dtype` and pandera's `checks`. What needs all rows of a table
(`unique`), or changes rows (`coerce`, `default`), is refused.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import ConfigError

_TEXTS = ("name", "title", "description", "schema_type", "version", "report_duplicates")
_SET_BY_PANDERA = ("PYARROW_IGNORE_TIMEZONE", "SPARK_LOCAL_IP")
NOT_MET = "not as expected: "


def read_expectations(path: str) -> str:
    """The text of the file, of which an Expectations can be made. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--expect {path} cannot be read: {error}") from None
    expectations(text, f"--expect {path}")
    return text


class Expectations:
    """A schema of pandera.

    Args:
        text: its YAML.
        where: the file, for messages.

    Raises:
        ConfigError: pandera is not installed, or the text is no schema that rows can be judged by one by one.
    """

    def __init__(self, text: str, where: str = "--expect") -> None:
        given = _yaml(text, where)
        columns = given.get("columns") if isinstance(given, dict) else None
        if not columns or not isinstance(columns, dict):
            raise ConfigError(f"{where} has no columns: it is to be a schema of pandera, in YAML")
        _refuse(given, ("columns", *_TEXTS), where)
        for name, each in columns.items():
            known = ("nullable", "required", "dtype", "checks", *_TEXTS)
            _refuse(each or {}, known, f"{where}: column {name}")
        read = _reader()
        try:
            self._schema: Any = read(text)
        except Exception as error:  # noqa: BLE001 - whatever somebody has written
            raise ConfigError(f"{where} is no schema of pandera: {error}"[:500]) from None

    @property
    def names(self) -> list[str]:
        """What is expected, such as "delay: in_range(0, 9)": as `judge` has it."""
        found = []
        for name, column in self._schema.columns.items():
            found += [f"{name}: not_nullable"] if not column.nullable else []
            found += [f"{name}: {_told(check)}" for check in column.checks]
        return found

    def judge(self, rows: pa.Table) -> dict[str, pa.Array]:
        """For each expectation that is not met, where it is not: a boolean for each row.

        What says nothing of single rows (a column that is not there, or of another type) is not met by any.
        """
        import polars as pl
        from pandera.errors import SchemaErrors

        there = [name for name in self._schema.columns if name in rows.column_names]
        frame = pl.from_arrow(rows.select(there))
        if not there:
            frame = pl.DataFrame({"": [None] * rows.num_rows})
        try:
            self._schema.validate(frame, lazy=True)
        except SchemaErrors as found:
            return {_name(each): _where(each, rows.num_rows) for each in found.schema_errors}
        return {}


@cache
def expectations(text: str, where: str = "--expect") -> Expectations:
    """Of a process, a worker or the driver: one schema for all of its tasks or topics."""
    return Expectations(text, where)


def reasons_of(unmet: Mapping[str, pa.Array], count: int) -> pa.Array:
    """For each row the expectations that it does not meet, as text; null if it meets all."""
    found = pa.nulls(count, pa.string())
    for name, mask in unmet.items():
        longer = pc.binary_join_element_wise(found, pa.scalar(name), "; ", null_handling="skip")
        found = pc.if_else(mask, longer, found)
    return found


def _reader() -> Any:
    """The reader of YAML. Imported, pandera sets variables for pyspark.pandas: with one of them Arrow drops the zones of times, with
    the other Spark's driver is at the loopback address alone."""
    before = {name: os.environ.get(name) for name in _SET_BY_PANDERA}
    try:
        from pandera.io.polars_io import from_yaml
    except ImportError:
        raise ConfigError('--expect needs pandera: pip install "roquette[expect]"') from None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
    return from_yaml


def _yaml(text: str, where: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is no YAML: {' '.join(str(error).split())}") from None


def _refuse(given: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is no mapping")
    for name, value in given.items():
        if name not in known and value not in (None, False, [], {}):
            raise ConfigError(f"{where}: {name} is not for rows one by one: leave it out")


def _told(check: Any) -> str:
    return str(getattr(check, "error", None) or getattr(check, "name", None) or check)


def _name(error: Any) -> str:
    column = getattr(error.schema, "name", None) or error.failure_cases
    return f"{column}: {_told(error.check)}"


def _where(error: Any, count: int) -> pa.Array:
    output = error.check_output
    if output is None or len(output) != count:
        return pa.array([True] * count, pa.bool_())
    return pc.invert(pc.fill_null(output.to_series().to_arrow(), True))
