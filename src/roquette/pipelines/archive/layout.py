"""How rows lie in a table's files: which columns partition it, and by which rows are in order."""

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from roquette.errors import ConfigError
from roquette.pipelines.kit.message_rows import BY_DAY, BY_HOUR, DAY, RowForm

_NAME = re.compile(r"\w[\w-]*")  # of a folder that every reader finds


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
        if body.get(form.day_of, "timestamp") not in ("timestamp", "timestamp_ntz", "string"):
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


def check_sort(
    topic: str, columns: pa.Schema, sort: Sequence[str], partitioned_by: Sequence[str]
) -> None:
    """Raises ConfigError for what is no column of the table's files, or has no order."""
    for name in sort:
        if name not in columns.names or name in partitioned_by:
            raise ConfigError(f"archive: --sort-by {name}: the table of {topic} has no such column")
        if pa.types.is_nested(columns.field(name).type):
            raise ConfigError(f"archive: --sort-by {name}: lists, maps and structs have no order")
