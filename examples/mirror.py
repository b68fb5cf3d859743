"""Keep a copy of topics on another cluster: `python examples/mirror.py OLD:9876 NEW:9876 STATE orders,bills`.

Goes on where it was when it is started again with the same STATE directory. Ends by SIGTERM or Ctrl-C.
"""

import sys

from roquette_spark import spark_session


def mirror(spark, old: str, new: str, state: str, topics: str, **trigger):
    """Start the copy; the query that is returned runs until it is stopped."""
    messages = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=old, subscribe=topics, startingOffsets="earliest")
        .load()
        .drop("broker_name", "queue_id")  # the other cluster has its own; keys keep their order
    )
    return (
        messages.writeStream.format("rocketmq")
        .options(namesrvAddr=new, deliveryGuarantee="idempotent", ignoreUnknownColumns="true")
        .option("checkpointLocation", state)
        .trigger(**(trigger or {"processingTime": "5 seconds"}))
        .start()
    )


if __name__ == "__main__":
    old, new, state, topics = sys.argv[1:]
    mirror(spark_session("mirror", 2), old, new, state, topics).awaitTermination()
