"""A stream from topic to topic with ids, to be killed at any moment: run by test_sink_kills."""

import sys

from roquette_spark.local.jdk import spark_session


def main(namesrv: str, origin: str, target: str, checkpoint: str) -> None:
    """Copy what there is, 500 messages a batch, and end."""
    spark = spark_session(
        "killed",
        2,
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    frame = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=namesrv, subscribe=origin, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "500")
        .option("minRecordsPerPartition", "0")  # several tasks a batch, to be killed between them
        .load()
        .select("body", "key")
    )
    query = (
        frame.writeStream.format("rocketmq")
        .options(namesrvAddr=namesrv, topic=target, deliveryGuarantee="idempotent")
        .option("sendBatchSize", "20")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
