"""Messages that an idempotent write stored twice, taken out on reading: by the id in property __SPARK_ID."""

from typing import TYPE_CHECKING

from roquette.errors import ConfigError
from roquette_spark.values.options import SPARK_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "broker_name", "queue_id", "queue_offset")


def spark_id(frame: "DataFrame") -> "Column":
    """The id a message was written with; null for messages of other producers. Needs column properties.

    Raises:
        ConfigError: the frame has no such column.
    """
    from pyspark.sql import functions as f

    _require(frame, "properties")
    return f.element_at(frame["properties"], SPARK_ID)


def remove_duplicates(frame: "DataFrame", *, watermark: str | None = None) -> "DataFrame":
    """Each message of an idempotent write once: the one at the lowest queue offset stays.

    Messages without an id, from other producers, all stay. The id is taken per topic.

    Args:
        frame: read by `format("rocketmq")` with columns properties, topic, broker_name, queue_id and queue_offset;
            a stream needs store_timestamp, too.
        watermark: for streams: how far apart, by store time, two copies may lie. It must be longer than the
            writing query was ever down between a failed batch and its repetition: copies further apart stay.

    Raises:
        ConfigError: a column is missing, or a stream is given without a watermark.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    _require(frame, "properties", *_PLACE)
    place = f.concat_ws("/", "topic", "broker_name", "queue_id", "queue_offset")
    written = f.concat_ws("/", "topic", spark_id(frame))
    identity = f.when(spark_id(frame).isNull(), f.concat(f.lit("@"), place)).otherwise(written)
    marked = frame.withColumn("__roquette_id", identity)
    if frame.isStreaming:
        if watermark is None:
            raise ConfigError(
                'remove_duplicates: a stream needs watermark, such as "1 hour": how far apart copies may lie'
            )
        _require(frame, "store_timestamp")
        marked = marked.withWatermark("store_timestamp", watermark)
        return marked.dropDuplicatesWithinWatermark(["__roquette_id"]).drop("__roquette_id")
    order = Window.partitionBy("__roquette_id").orderBy("broker_name", "queue_id", "queue_offset")
    numbered = marked.withColumn("__roquette_copy", f.row_number().over(order))
    kept = numbered.where(f.col("__roquette_copy") == 1)
    return kept.drop("__roquette_id", "__roquette_copy")


def _require(frame: "DataFrame", *names: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ConfigError(f"remove_duplicates: the frame lacks columns {', '.join(missing)}")
