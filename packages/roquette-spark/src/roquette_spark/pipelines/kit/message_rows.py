"""Messages as rows of an archive: which columns there are, and those of Avro's schemas."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from roquette.base.options import OptionKind
from roquette.errors import ConfigError

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")  # of columns, says Delta
DAY = "dt"  # the column that partitions unless another one is asked for; a date in UTC
HOUR = "hour"  # of tables by the hour; 0 to 23, in UTC
BY_DAY, BY_HOUR = TIMES = ("day", "hour")  # and functions of a column
NO_FIELDS = frozenset({BY_DAY, BY_HOUR, "store_timestamp", "born_timestamp"})
ERROR = "error"

# What a row keeps of its message, by the source's names.
PLACE = ("broker_name", "queue_id", "queue_offset")
_IDENTITY = (*PLACE, "uniq_key", "keys", "tags")
_TIMES = ("born_timestamp", "store_timestamp")
RAW_COLUMNS = (
    *(*_IDENTITY, "body", "properties", *_TIMES, "born_host"),
    *("flag", "sys_flag", "reconsume_times", "message_group"),
)
# Beside the columns of a body, with a "_" before their names.
BESIDE_COLUMNS = (*_IDENTITY, *_TIMES)
# And what a producer gave beside the body, and fields of a body without a column, as JSON. Tables of the first form were begun
# without them and are widened.
EXTRA_COLUMNS = {
    "_properties": "properties",
    "_message_group": "message_group",
    "_flag": "flag",
    "_rescued": "",  # made by the reader of bodies
}
RESCUED = "_rescued"
# Expectations that a row does not meet, as text; only of tables that mark such rows.
UNMET = "_unmet"
FORMATS = ("json", "connect", "raw", "avro", "registry")
# Values that no column takes are rescued, or become columns.
EVOLVING = ("json", "connect", "registry")
# In the settings of a table with these columns, so that versions that would drop them stop there.
NEWER = "made_by_a_newer_roquette_than_this"


_TRANSFORM = re.compile(r"(?:(bucket|truncate)\(([1-9]\d{0,8}), *|(day|hour)\()(\w[\w-]*)\)")


@dataclass(frozen=True, slots=True)
class Transform:
    """What makes the values that partition a table of Iceberg out of a column's; readers are not told to look for them.

    Attributes:
        function: bucket, truncate, day or hour.
        width: how many buckets, or what is kept: characters, or the step of numbers; 0 of days and hours.
    """

    function: str
    width: int
    column: str

    @classmethod
    def read(cls, partition: str) -> "Transform | None":
        """Of what `--partition` says; None for days, hours and plain columns."""
        found = _TRANSFORM.fullmatch(partition)
        if found is None:
            return None
        return cls(found[1] or found[3], int(found[2] or 0), found[4])

    @property
    def name(self) -> str:
        """In folders and in the table's metadata, such as user_bucket_16; no column can have it."""
        what = "trunc" if self.function == "truncate" else self.function
        return f"{self.column}_{what}" + (f"_{self.width}" if self.width else "")


def _partition(text: str) -> str:
    if "(" in text and Transform.read(text) is None:
        raise ValueError(text)
    return re.sub(", *", ", ", text)


PARTITION: Final = OptionKind(
    wanted="day, hour, a column, or of a column bucket(N, COLUMN), truncate(W, COLUMN), day(COLUMN), hour(COLUMN)",
    parse=_partition,
)


@dataclass(frozen=True, slots=True)
class RowForm:
    """Form of rows: how bodies become them.

    Attributes:
        kind: one of FORMATS.
        body_schema: Spark's JSON of a body's columns; "" for raw.
        avro_schema: the writer's schema, as JSON text; "" if not Avro.
        keep_body: keep the bytes, too, as `_body`.
        day_of: the column the day is taken from.
        partition: BY_DAY, BY_HOUR, the name of a column of the table, or a Transform as text.
        marks: rows have the column UNMET.
        renames: fields of bodies whose columns have other names, and these names.
        masked: columns whose values are left out, wherever a row or a message of the quarantine would have them.
    """

    kind: str
    body_schema: str = ""
    avro_schema: str = ""
    keep_body: bool = False
    day_of: str = "store_timestamp"
    partition: str = BY_DAY
    marks: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What partitions the table: columns, or a Transform as text."""
        return {BY_DAY: (DAY,), BY_HOUR: (DAY, HOUR)}.get(self.partition, (self.partition,))

    @property
    def by_time(self) -> bool:
        return self.partition in TIMES or self.partition.startswith(("day(", "hour("))

    @property
    def transform(self) -> Transform | None:
        return Transform.read(self.partition)

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The names of the table's folders: columns, or that of the transform."""
        return self.parts if self.transform is None else (self.transform.name,)

    @classmethod
    def of_settings(cls, text: str) -> "RowForm":
        found = {name: value for name, value in json.loads(text).items() if name != NEWER}
        return cls(**{**found, "masked": tuple(found.get("masked", ()))})

    def settings(self) -> str:
        found = {name: getattr(self, name) for name in self.__slots__}
        if self.partition == BY_DAY:
            del found["partition"]  # versions before know nothing else
        for name in ("marks", "renames", "masked"):
            if not found[name]:
                del found[name]
        return json.dumps(found if self.kind == "raw" else {**found, NEWER: True})

    def takes(self, name: str) -> bool:
        """Return True if a field of bodies can become a column."""
        taken = {column.lower() for column in self.renames.values()}
        free = name.lower() not in taken and may_be_column(name, self.partition)
        return free or name in self.renames

    def extra_names(self) -> list[str]:
        """Those of EXTRA_COLUMNS that its rows have."""
        if self.kind == "raw":
            return []
        taken = {field["name"].lower() for field in json.loads(self.body_schema)["fields"]}
        names = [name for name in EXTRA_COLUMNS if name not in taken]
        if self.kind not in EVOLVING:
            names = [name for name in names if name != RESCUED]
        return [*names, UNMET] if self.marks else names


@cache
def own_columns(partition: str = BY_DAY) -> frozenset[str]:
    """Names that are ours beside a body's columns; case does not count."""
    found = {DAY, "_body", UNMET, *EXTRA_COLUMNS, *(f"_{name}" for name in BESIDE_COLUMNS)}
    transform = Transform.read(partition)
    if transform is not None:
        found.add(transform.name.lower())
    return frozenset(found | {HOUR} if partition == BY_HOUR else found)


def check_names(form: RowForm) -> None:
    """Columns of bodies must not be called as ours, nor twice.

    Raises:
        ConfigError: says which; or the day is to be taken from a column that is not there.
    """
    body = json.loads(form.body_schema)["fields"] if form.kind != "raw" else []
    names = [field["name"] for field in body]
    if form.day_of not in ("store_timestamp", "born_timestamp", *names):
        raise ConfigError(
            f"archive: --day-of {form.day_of} is neither store_timestamp, born_timestamp nor a column "
            f"of the body; those are: {', '.join(names) or 'none, with --format raw'}"
        )
    ours, seen = own_columns(form.partition), set[str]()
    for name in names:
        if name.lower() in ours or name.lower() in seen:
            raise ConfigError(
                f"archive: the body's column {name} has the name of another column (case does not count): "
                + (
                    f"leave it out of --schema, its values then go to {RESCUED}"
                    if form.kind in EVOLVING
                    else "use --format raw"
                )
            )
        seen.add(name.lower())


def may_be_name(name: str) -> bool:
    """Whether Delta Lake has columns and nested fields of that name."""
    return bool(name) and not _NOT_IN_NAMES & set(name)


def may_be_column(name: str, partition: str = BY_DAY) -> bool:
    """Whether a field's name can become a column's: not ours, and none that Delta refuses."""
    return may_be_name(name) and name.lower() not in own_columns(partition)


MOST_DIGITS = 38  # of Delta's, Iceberg's and Spark's decimals
