"""How rows lie in a table's files: which columns partition it, and by which rows are in order."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import (
    BY_DAY,
    BY_HOUR,
    DAY,
    RowForm,
    may_be_column,
)

_NAME = re.compile(r"\w[\w-]*")  # of a folder that every reader finds
_TIMES = ("timestamp", "timestamp_ntz", "string")  # kinds of a column that may have hours
_FOLDERS = ("string", "byte", "short", "integer", "long", "date", "boolean")


def check_partition(topic: str, columns: pa.Schema, form: RowForm) -> None:
    """Whether a new table can be partitioned so.

    Args:
        columns: of the table.

    Raises:
        ConfigError: no such column, or none with values for folders' names; or there is no hour to take.
    """
    name = form.partition
    said = f"archive: --partition {name}: "
    if name == BY_HOUR:
        body = {
            f["name"]: f["type"] for f in json.loads(form.body_schema or '{"fields":[]}')["fields"]
        }
        if body.get(form.day_of, "timestamp") not in _TIMES:
            raise ConfigError(
                f"{said}column {form.day_of} of topic {topic} has no hours: give --partition day, or another --day-of"
            )
    if name in (BY_DAY, BY_HOUR):
        return
    fits = [each.name for each in columns if _names_folders(each) and each.name != DAY]
    if name == DAY:
        raise ConfigError(f"{said}that is --partition day")
    if name not in fits:
        what = "has no values for folders" if name in columns.names else "is not there"
        raise ConfigError(
            f"{said}in the table of {topic} this column {what}; day and hour are always possible, and the columns "
            f"{', '.join(fits)}"
        )


def _names_folders(field: pa.Field) -> bool:
    t = pa.types
    kinds = (t.is_string, t.is_integer, t.is_date, t.is_boolean)
    return bool(_NAME.fullmatch(field.name)) and any(each(field.type) for each in kinds)


def with_places(form: RowForm) -> tuple[RowForm, list[str]]:
    """The form with the columns that days, hours and folders are from, as text where bodies have none that fits.

    For a topic that is one of many: it has its table, with nulls there, and nothing is lost.

    Returns:
        also the options and columns in question, such as "--partition region".
    """
    schema = json.loads(form.body_schema)
    wanted: dict[str, tuple[str, tuple[str, ...] | None]] = {}
    if form.day_of not in ("store_timestamp", "born_timestamp"):
        wanted[form.day_of] = "--day-of", _TIMES if form.partition == BY_HOUR else None
    if form.partition not in (BY_DAY, BY_HOUR):
        wanted[form.partition] = "--partition", _FOLDERS
    said = []
    for name, (option, kinds) in wanted.items():
        there = {each["name"]: each["type"] for each in schema["fields"]}
        if not may_be_column(name, form.partition):  # one of ours, or refused for every topic
            continue
        if name not in there or (kinds is not None and there[name] not in kinds):
            others = [each for each in schema["fields"] if each["name"].lower() != name.lower()]
            text = {"name": name, "type": "string", "nullable": True, "metadata": {}}
            schema["fields"] = [*others, text]
            said.append(f"{option} {name}")
    return (replace(form, body_schema=json.dumps(schema)), said) if said else (form, said)


def can_sort(columns: pa.Schema, name: str, partitioned_by: Sequence[str]) -> bool:
    """Whether rows of a table's files can be in order by that column."""
    there = name in columns.names and name not in partitioned_by
    return there and not pa.types.is_nested(columns.field(name).type)


def check_sort(
    topic: str, columns: pa.Schema, sort: Sequence[str], partitioned_by: Sequence[str]
) -> None:
    """Raises ConfigError for what is no column of the table's files, or has no order."""
    for name in sort:
        if not can_sort(columns, name, partitioned_by):
            what = f"the table of {topic} has no such column"
            if name in columns.names and name not in partitioned_by:
                what = "lists, maps and structs have no order"
            raise ConfigError(f"archive: --sort-by {name}: {what}")
