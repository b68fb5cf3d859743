"""The audit table of a dead-letter replay: Parquet files, one or two rows for each message that was sent back.

State is `planned` before a message is sent, `sent` after; `found` when a later run saw in the target topic that a
planned message had been sent by a run that was killed.
"""

import os
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLANNED, SENT, FOUND = "planned", "sent", "found"
SCHEMA: Final = (
    "id string, group string, origin_topic string, origin_msg_id string, target string, state string, "
    "run string, at timestamp"
)


def check_place(directory: str) -> str:
    """What is there, for plans. Spark would write beside, and remove, what others have in a folder.

    Raises:
        ConfigError: it is somebody else's.
    """
    if not os.path.lexists(directory):
        return "new"
    if not os.path.isdir(directory):
        raise ConfigError(f"dlq: --audit {directory} is no directory: give another")
    names = [name for name in sorted(os.listdir(directory)) if not name.startswith("_temporary")]
    parts = [name for name in names if name.startswith("part-") and name.endswith(".parquet")]
    others = [n for n in names if n not in parts and not n.endswith(".crc") and n != "_SUCCESS"]
    if not others and all(_is_part(os.path.join(directory, name)) for name in parts):
        return f"{len(parts)} files"
    shown = ", ".join((others or parts)[:3])
    raise ConfigError(
        f"dlq: --audit {directory} has files that are not of an audit table ({shown}): nothing was changed "
        "there; give another directory"
    )


def _is_part(path: str) -> bool:
    try:
        return bool(pq.read_schema(path).names == [each.split()[0] for each in SCHEMA.split(", ")])
    except (pa.ArrowInvalid, OSError):
        return False


def with_letter(rows: "DataFrame") -> "DataFrame":
    """With a column `letter`: the id, which is a position, and the first message's id: a topic that was created
    again has other letters at the same positions."""
    from pyspark.sql import functions as f

    return rows.withColumn("letter", f.concat_ws("|", "id", "origin_msg_id"))


class AuditTable:
    """Rows in a directory; only appended to. One run at a time may use it."""

    def __init__(self, spark: "SparkSession", directory: str, files: Files, clock: Clock) -> None:
        self._spark = spark
        self._directory = directory
        self._clock = clock
        files.make_dirs(directory)
        self.run = f"{clock.now_ms()}-{Entropy().token(4)}"

    def rows(self) -> "DataFrame":
        """Everything noted so far, with `letter`."""
        return with_letter(self._spark.read.schema(SCHEMA).parquet(self._directory))

    def append(self, letters: "DataFrame", state: str) -> None:
        """Note letters (columns id, group, origin_topic, origin_msg_id, target) under a state."""
        from pyspark.sql import functions as f

        at = f.timestamp_millis(f.lit(self._clock.now_ms()))
        rows = letters.select(
            *("id", "group", "origin_topic", "origin_msg_id", "target"),
            f.lit(state).alias("state"),
            f.lit(self.run).alias("run"),
            at.alias("at"),
        )
        rows.coalesce(1).write.mode("append").parquet(self._directory)

    def settled(self) -> "DataFrame":
        """Letters that are sent: never again."""
        return self.rows().where(f"state IN ('{SENT}', '{FOUND}')").select("letter").distinct()

    def in_doubt(self) -> "DataFrame":
        """Planned by a run that did not say what became of them: letter, id, target, at."""
        planned = self.rows().where(f"state = '{PLANNED}'").select("letter", "id", "target", "at")
        return planned.join(self.settled(), "letter", "left_anti")

    def planned_now(self) -> "DataFrame":
        """Letters planned by this run."""
        mine = self.rows().where(f"state = '{PLANNED}' AND run = '{self.run}'")
        return mine.select("letter").distinct()

    @property
    def path(self) -> str:
        """Its directory, for people."""
        return os.path.abspath(self._directory)
