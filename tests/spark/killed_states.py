"""Two streams with state, of the examples, to be killed at any moment: run by test_state_kills."""

import sys

from examples.streams import orders, totals
from tests.pipelines.processes import SHORT_LIVED_JVM

from roquette_spark.local.jdk import spark_session


def main(namesrv: str, topic: str, folder: str) -> None:
    """Take what there is, some batches each, and end."""
    spark = spark_session("killed", 2, spark__driver__extraJavaOptions=SHORT_LIVED_JVM)
    spark.conf.set(totals.PROVIDER, totals.ROCKSDB)
    frame = orders.rows(spark, namesrv, topic, orders.ORDER, maxOffsetsPerTrigger="80")
    queries = [
        result.writeStream.format("parquet")
        .options(path=f"{folder}/{name}", checkpointLocation=f"{folder}/{name}-checkpoint")
        .trigger(availableNow=True)
        .start()
        for name, result in (("totals", totals.totals(frame)), ("windows", orders.sales(frame)))
    ]
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
