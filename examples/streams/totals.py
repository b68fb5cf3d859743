"""State of one's own: a running total for each customer, by transformWithState, kept in the checkpoint.

    python -m examples.streams.totals NAMESRV TOPIC DIRECTORY

Rows go to DIRECTORY/rows as Parquet, state and offsets to DIRECTORY/checkpoint; the same command goes on after any end.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from examples.streams.orders import ORDER, rows
from pyspark.sql.streaming import StatefulProcessor

from roquette_spark import spark_session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StatefulProcessorHandle

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# Spark keeps the state of transformWithState in RocksDB only.
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TOTALS = "customer string, orders bigint, amount double"


class Totals(StatefulProcessor):
    """One row for each customer of a batch, with the orders and the amount up to here."""

    def init(self, handle: "StatefulProcessorHandle") -> None:
        self._total = handle.getValueState("total", "orders bigint, amount double")

    def handleInputRows(
        self, key: Any, rows: Iterator["pd.DataFrame"], timerValues: Any
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        orders, amount = self._total.get() if self._total.exists() else (0, 0.0)
        for frame in rows:
            orders, amount = orders + len(frame), amount + float(frame["amount"].sum())
        self._total.update((orders, amount))
        yield pd.DataFrame({"customer": [key[0]], "orders": [orders], "amount": [amount]})

    def close(self) -> None:
        """Nothing is open."""


def totals(orders: "DataFrame") -> "DataFrame":
    """A stream of `TOTALS` rows; the session's state store must be `ROCKSDB`."""
    return orders.groupBy("customer").transformWithStateInPandas(
        statefulProcessor=Totals(),
        outputStructType=TOTALS,
        outputMode="Update",
        timeMode="None",
    )


def run(spark: "SparkSession", namesrv: str, topic: str, directory: str) -> None:
    """Take what is there, and end."""
    spark.conf.set(PROVIDER, ROCKSDB)
    query = (
        totals(rows(spark, namesrv, topic, ORDER))
        .writeStream.format("parquet")
        .options(path=f"{directory}/rows", checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run(spark_session("totals", cores=2), *sys.argv[1:4])
