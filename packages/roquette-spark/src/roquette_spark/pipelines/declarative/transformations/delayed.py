"""And back into a topic: flights that left an hour late or more, each once per run that reads it."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

dp.create_sink(
    "delayed",
    "rocketmq",
    {"namesrvAddr": os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), "topic": "flights-delayed"},
)


@dp.append_flow(target="delayed")
def late() -> DataFrame:
    """The body is the flight as JSON, the tag its airline, the key its aircraft."""
    flights = SparkSession.active().readStream.table("silver").where("dep_delay >= 60")
    return flights.selectExpr("to_json(struct(*)) AS body", "carrier AS tags", "tailnum AS key")
