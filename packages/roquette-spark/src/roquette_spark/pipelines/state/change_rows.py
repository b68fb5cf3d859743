"""Change events as rows of a current state: which is the key, the version, a deletion; which rows are bad."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit import message_rows as forms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED, VERSION = "deleted", "_version"
NO_KEY = "a column of the key is null"
TIES = (
    "_store_timestamp",
    "_broker_name",
    "_queue_id",
    "_queue_offset",
)  # equal versions: the later one


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """How a body becomes a change; kept with the table."""

    body_schema: str
    key: tuple[str, ...]
    version: str
    delete_when: str
    envelope: str

    @classmethod
    def of_settings(cls, text: str) -> "ChangeForm":
        """From a table's settings."""
        found = {name: value for name, value in json.loads(text).items() if name != forms.NEWER}
        return cls(**{**found, "key": tuple(found["key"])})

    def settings(self) -> str:
        """For a table's settings."""
        return json.dumps({**{n: getattr(self, n) for n in self.__slots__}, forms.NEWER: True})


def mark_changes(messages: "DataFrame", changes: ChangeForm) -> "DataFrame":
    """Messages with the parsed body, and BAD where a body or its key cannot be read.

    Raises:
        ConfigError: a key column or an expression does not fit the body's columns.
    """
    from pyspark.sql import functions as f

    form = forms.RowForm("json", changes.body_schema)
    # A deletion in Debezium's manner is followed by a message without a body, for compacted topics.
    kept = messages if changes.envelope == "none" else messages.where(f.length("body") > 0)
    rows = forms.marked(kept, form)
    body = rows.schema[forms.PARSED].dataType
    root = forms.PARSED
    if changes.envelope == "debezium":
        if "payload" in body.names:
            body, root = body["payload"].dataType, f"{root}.payload"
        missing = {"op", "before", "after", "ts_ms"} - set(body.names)
        if missing:
            raise ConfigError(
                f"current-state: bodies have no {', '.join(sorted(missing))}: that is not Debezium's envelope"
            )
        body = body["after"].dataType
    unknown = [name for name in changes.key if name not in body.names]
    if unknown:
        raise ConfigError(
            f"current-state: --key {', '.join(unknown)} is no column of the body; those are: "
            f"{', '.join(name for name in body.names if name != forms.CORRUPT)}"
        )
    no_key = f.lit(False)
    for name in changes.key:
        no_key = no_key | _column(changes, root, name).isNull()
    reason = f.coalesce(f.col(forms.BAD), f.when(no_key, NO_KEY))
    return rows.withColumn(forms.BAD, reason)


def _column(changes: ChangeForm, root: str, name: str) -> Any:
    from pyspark.sql import functions as f

    if changes.envelope == "none":
        return f.col(f"{root}.`{name}`")
    return f.coalesce(f.col(f"{root}.after.`{name}`"), f.col(f"{root}.before.`{name}`"))


def changes_of(rows: "DataFrame", changes: ChangeForm) -> "DataFrame":
    """The columns of the table, one row per change.

    Raises:
        ConfigError: an expression names what is not there.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    body = rows.schema[forms.PARSED].dataType
    root, names = forms.PARSED, body.names
    version, delete = changes.version or "store_timestamp", changes.delete_when or "false"
    if changes.envelope == "debezium":
        if "payload" in body.names:
            body, root = body["payload"].dataType, f"{root}.payload"
        names = body["after"].dataType.names
        version, delete = changes.version or "ts_ms", changes.delete_when or "op = 'd'"
    good = rows.where(f.col(forms.BAD).isNull())
    # Expressions see the body's columns, and those columns of the message that are not called alike.
    seen = [name for name in body.names if name != forms.CORRUPT]
    lower = {name.lower() for name in (*seen, forms.PARSED, forms.BAD)}
    wide = good.select(
        f.struct(*good.columns).alias("_row"),
        *(f.col(f"{root}.`{name}`").alias(name) for name in seen),
        *(name for name in good.columns if name.lower() not in lower),
    )
    try:
        marked = wide.select(
            "_row.*",
            f.expr(version).alias(VERSION),
            f.coalesce(f.expr(delete).cast("boolean"), f.lit(False)).alias(DELETED),
        )
    except PySparkException as error:
        line = " ".join(str(error).split("\n", 1)[0].split())[:300]
        raise ConfigError(
            f"current-state: --version {version!r} or --delete-when {delete!r} cannot be used: {line}"
        ) from None
    columns = [_column(changes, root, name).alias(name) for name in names if name != forms.CORRUPT]
    columns += [f.col(name.removeprefix("_")).alias(name) for name in TIES]
    if forms.RESCUED not in names:
        columns.append(f.col(f"{forms.LOOKED}.rescued").alias(forms.RESCUED))
    return marked.select(*columns, VERSION, DELETED)
