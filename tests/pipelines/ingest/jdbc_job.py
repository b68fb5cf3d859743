"""python -m tests.pipelines.ingest.jdbc_job DRIVER.jar PORT NAMESRV TOPIC: the table `flown` into a topic, in a session of its own,
since a driver is among the session's jars from its start."""

import sys

from roquette_spark import spark_session


def main(driver: str, port: str, namesrv: str, topic: str) -> None:
    spark = spark_session("jdbc", 2, spark__jars=driver)
    table = spark.read.format("jdbc").options(
        url=f"jdbc:postgresql://127.0.0.1:{port}/postgres",
        driver="org.postgresql.Driver",
        user="shop",
        dbtable="flown",
        partitionColumn="id",
        lowerBound="1",
        upperBound="500",
        numPartitions="3",
    )
    (
        table.load()
        .selectExpr("to_json(struct(*)) AS body", "string(id) AS key")
        .write.format("rocketmq")
        .options(namesrvAddr=namesrv, topic=topic)
        .mode("append")
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
