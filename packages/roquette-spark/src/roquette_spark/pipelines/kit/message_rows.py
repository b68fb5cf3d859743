"""Messages as rows of an archive: which columns, how bodies become columns, which rows are bad."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.json_bodies import MALFORMED, looked_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")  # of columns, says Delta
DAY = "dt"  # the column that partitions unless another one is asked for; a date in UTC
HOUR = "hour"  # of tables by the hour; 0 to 23, in UTC
BY_DAY, BY_HOUR = "day", "hour"
ERROR = "error"
BAD = "_bad"
PARSED = "_parsed"
CORRUPT = "_corrupt"

# What a row keeps of its message, by the source's names.
RAW_COLUMNS = (
    "broker_name",
    "queue_id",
    "queue_offset",
    "uniq_key",
    "keys",
    "tags",
    "body",
    "properties",
    "born_timestamp",
    "store_timestamp",
    "born_host",
    "flag",
    "sys_flag",
    "reconsume_times",
    "message_group",
)
# Beside the columns of a body, with a "_" before their names.
BESIDE_COLUMNS = (
    "broker_name",
    "queue_id",
    "queue_offset",
    "uniq_key",
    "keys",
    "tags",
    "born_timestamp",
    "store_timestamp",
)
# And what a producer gave beside the body, and fields of a body without a column, as JSON. Tables of the first form were begun
# without them and are widened.
EXTRA_COLUMNS = {
    "_properties": "properties",
    "_message_group": "message_group",
    "_flag": "flag",
    "_rescued": "_looked.rescued",
}
RESCUED, LOOKED = "_rescued", "_looked"
FORMATS = ("json", "raw", "avro", "registry")
EVOLVING = ("json", "registry")  # values that no column takes are rescued, or become columns
# In the settings of a table with these columns, so that versions that would drop them stop there.
NEWER = "made_by_a_newer_roquette_than_this"


class NoObjects(PipelineError):
    """No body of a sample is a JSON object."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """How bodies become rows.

    Attributes:
        kind: one of FORMATS.
        body_schema: Spark's JSON of a body's columns; "" for raw.
        avro_schema: the writer's schema, as JSON text; "" if not Avro.
        keep_body: keep the bytes, too, as `_body`.
        day_of: the column the day is taken from.
        partition: BY_DAY, BY_HOUR, or the name of a column of the table.
    """

    kind: str
    body_schema: str = ""
    avro_schema: str = ""
    keep_body: bool = False
    day_of: str = "store_timestamp"
    partition: str = BY_DAY

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns whose values the table's folders have."""
        return {BY_DAY: (DAY,), BY_HOUR: (DAY, HOUR)}.get(self.partition, (self.partition,))

    @classmethod
    def of_settings(cls, text: str) -> "RowForm":
        """From a table's settings."""
        return cls(**{name: value for name, value in json.loads(text).items() if name != NEWER})

    def settings(self) -> str:
        """For a table's settings."""
        found = {name: getattr(self, name) for name in self.__slots__}
        if self.partition == BY_DAY:
            del found["partition"]  # versions before know nothing else
        return json.dumps(found if self.kind == "raw" else {**found, NEWER: True})

    def extra_names(self) -> list[str]:
        """Those of EXTRA_COLUMNS that its rows have."""
        if self.kind == "raw":
            return []
        taken = {field["name"].lower() for field in json.loads(self.body_schema)["fields"]}
        names = [name for name in EXTRA_COLUMNS if name not in taken]
        return names if self.kind in EVOLVING else [name for name in names if name != RESCUED]


def source_schema() -> str:
    """The columns to read, as DDL."""
    from roquette_spark.schema import COLUMNS

    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in RAW_COLUMNS)


def marked(messages: "DataFrame", form: RowForm) -> "DataFrame":
    """Messages with JSON bodies, PARSED (the body's columns as a struct) and BAD (why it is bad, or null)."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    text = f.col("body").cast("string")
    looked = messages.withColumn(LOOKED, looked_at(f.col("body"), form.body_schema))
    fitted = f.coalesce(f.col(f"{LOOKED}.text"), text)
    with_corrupt = StructType.fromJson(json.loads(form.body_schema)).add(CORRUPT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = looked.withColumn(PARSED, f.from_json(fitted, with_corrupt, options))
    reason = (
        f.when(f.col("body").isNull() | (f.length("body") == 0), "the body is empty")
        .when(~f.is_valid_utf8(text), "the body is not UTF-8")
        .when(~text.rlike(r"^\s*\{"), "the body is no JSON object")
        .when(f.col(f"{LOOKED}.error").isNotNull(), f.col(f"{LOOKED}.error"))
        .when(f.col(PARSED).isNull() | f.col(f"{PARSED}.{CORRUPT}").isNotNull(), MALFORMED)
    )
    return parsed.withColumn(BAD, reason)


def bad_rows(rows: "DataFrame") -> "DataFrame":
    """The rows of the quarantine: the message as it is, and what is wrong with it."""
    from pyspark.sql import functions as f

    day = f.to_date("store_timestamp").alias(DAY)
    return rows.where(f.col(BAD).isNotNull()).select(f.col(BAD).alias(ERROR), *RAW_COLUMNS, day)


def own_columns(partition: str = BY_DAY) -> set[str]:
    """Names that are ours beside a body's columns; case does not count."""
    found = {DAY, "_body", CORRUPT, *EXTRA_COLUMNS, *(f"_{name}" for name in BESIDE_COLUMNS)}
    return found | {HOUR} if partition == BY_HOUR else found


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


def schema_of_text(spark: "SparkSession", text: str) -> str:
    """Spark's JSON of a schema given as DDL ("id int, name string") or as that JSON.

    Raises:
        ConfigError: it is neither.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return str(StructType.fromJson(json.loads(text)).json())
        return str(StructType.fromDDL(text).json())
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        words = str(error).strip().split("\n", 1)[0][:200]
        raise ConfigError(
            f'archive: --schema must be columns such as "id int, name string", not {text[:80]!r}: {words}'
        ) from None


def infer_json_schema(spark: "SparkSession", bodies: "DataFrame", topic: str) -> str:
    """The schema of a sample of bodies (one column `body`), as Spark's JSON.

    Raises:
        NoObjects: no body of the sample is a JSON object.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    texts = bodies.select(f.col("body").cast("string").alias("body")).where(
        r"is_valid_utf8(body) and body rlike '^\\s*\\{'"
    )
    found = spark.read.json(texts.rdd.map(lambda row: row[0]))
    fields = [field for field in found.schema.fields if field.name != "_corrupt_record"]
    if not fields:
        raise NoObjects(
            f"archive: no message in the sample of topic {topic} is a JSON object: use --format raw, or give "
            "--schema"
        )
    return str(StructType(fields).json())


def possible_columns(schema: str, partition: str) -> str:
    """A schema that nobody wrote for us (Spark's JSON), without fields that cannot be columns: those are rescued."""
    found: dict[str, Any] = {}
    for field in json.loads(schema)["fields"]:
        if may_be_column(field["name"], partition):
            found.setdefault(field["name"].lower(), field)
    return json.dumps({"type": "struct", "fields": list(found.values())})


def may_be_column(name: str, partition: str = BY_DAY) -> bool:
    """Whether a field's name can become a column's: not ours, and none that Delta refuses."""
    ours = own_columns(partition)
    return bool(name) and name.lower() not in ours and not _NOT_IN_NAMES & set(name)
