"""Run by the Python of PySpark 4.1: what Spark reads of tables by Delta's own library.

usage: python delta_spark.py JAR,JAR...

Each line of its input is a query; the answer is a line of JSON: the rows. Values that JSON does not have are {"type": text}.
"""

import json
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def main() -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", sys.argv[1])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Tokyo")
        .getOrCreate()
    )
    for line in sys.stdin:
        found: Any
        try:
            found = [[shown(value) for value in row] for row in spark.sql(line).collect()]
        except Exception as error:  # noqa: BLE001 - whatever Spark has to say
            found = str(error)
        print(json.dumps(found), flush=True)


def shown(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, datetime):  # naive, of this process's zone, which is UTC
        return {"time": value.isoformat()}
    if isinstance(value, date):
        return {"day": value.isoformat()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": value.hex()}
    if hasattr(value, "asDict"):
        return {"row": {name: shown(each) for name, each in value.asDict().items()}}
    if isinstance(value, dict):
        return {"map": [[key, shown(each)] for key, each in value.items()]}
    return [shown(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
