"""The columns a write takes, checked once per write."""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from roquette.errors import ConfigError
from roquette_spark.options import COLUMN, HASH, ROUND_ROBIN, WriteOptions

_INTEGERS = ("int", "bigint", "smallint", "tinyint")

# Type texts by column, all that are taken.
WRITE_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "key": ("string",),
    "keys": ("array<string>",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "broker_name": ("string",),
    "queue_id": _INTEGERS,
    "message_group": ("string",),
    "deliver_timestamp": ("timestamp", "bigint"),
    "delay_level": _INTEGERS,
    "flag": _INTEGERS,
}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Places of a message's columns in the frame, and who chooses the queue.

    Attributes:
        positions: index in the frame by our name of a column; columns that are not ours are not in it.
        id_position: index of the column whose value is the message's id.
        selector: HASH, ROUND_ROBIN or COLUMN.
    """

    positions: dict[str, int]
    id_position: int | None
    selector: str


def write_columns(schema: StructType, options: WriteOptions) -> WriteColumns:
    """Find the columns; names are compared without case, as Spark's are.

    Raises:
        ConfigError: a column is unknown, twice there, missing, or of a type that is not taken.
    """
    positions: dict[str, int] = {}
    unknown: list[str] = []
    id_name = options.id_column.lower() or None
    id_position = None
    for position, column in enumerate(schema.fields):
        name, kind = column.name.lower(), column.dataType.simpleString()
        if name == id_name:
            id_position = position
            if kind != "string":
                raise ConfigError(f"rocketmq: idColumn {column.name} must be string, not {kind}")
        wanted = WRITE_COLUMNS.get(name)
        if wanted is None:
            if name != id_name:
                unknown.append(column.name)
            continue
        if kind not in wanted and kind != "void":
            raise ConfigError(f"rocketmq: column {name} must be {' or '.join(wanted)}, not {kind}")
        if name in positions:
            raise ConfigError(f"rocketmq: column {name} is there twice")
        if kind != "void":  # lit(None): as if it were not there
            positions[name] = position
    if unknown and not options.ignore_unknown_columns:
        raise ConfigError(
            f"rocketmq: columns that no message has: {', '.join(unknown)}; a message has "
            f"{', '.join(WRITE_COLUMNS)}; drop them, or set ignoreUnknownColumns=true"
        )
    _check(positions, options, has_id=id_position is not None)
    return WriteColumns(positions, id_position, _selector(positions, options))


def _check(positions: dict[str, int], options: WriteOptions, *, has_id: bool) -> None:
    if "body" not in positions:
        raise ConfigError("rocketmq: a column body (string or binary) is required")
    if not options.topic and "topic" not in positions:
        raise ConfigError("rocketmq: give option topic, or a column topic")
    if "broker_name" in positions and "queue_id" not in positions:
        raise ConfigError("rocketmq: column broker_name needs column queue_id")
    if options.id_column and not has_id:
        raise ConfigError(f"rocketmq: there is no column {options.id_column}, which idColumn names")
    if options.selector == COLUMN and "queue_id" not in positions:
        raise ConfigError("rocketmq: queueSelector=column needs a column queue_id")
    if options.selector == HASH and not {"key", "keys", "message_group"} & positions.keys():
        raise ConfigError(
            "rocketmq: queueSelector=hash(key) needs a column key, keys or message_group"
        )


def _selector(positions: dict[str, int], options: WriteOptions) -> str:
    if options.selector is not None:
        return options.selector
    if "queue_id" in positions:
        return COLUMN
    return HASH if {"key", "keys", "message_group"} & positions.keys() else ROUND_ROBIN
