"""Bronze: every message of the topic as it is."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession


@dp.table
def bronze() -> DataFrame:
    """Goes on where the run before ended; the first one begins with the oldest message."""
    source = SparkSession.active().readStream.format("rocketmq")
    return source.options(
        namesrvAddr=os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"),
        subscribe="flights",
        startingOffsets="earliest",
    ).load()
