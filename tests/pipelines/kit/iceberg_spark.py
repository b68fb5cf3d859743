"""Run by the Python of PySpark 4.1: what Spark reads of a table by Iceberg's own library, as JSON.

usage: python iceberg_spark.py JAR METADATA FILTER
"""

import json
import sys


def main() -> None:
    from pyspark.sql import SparkSession

    jar, metadata, condition = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "Asia/Tokyo")
        .getOrCreate()
    )
    table = spark.read.format("iceberg").load(metadata)
    rows = [row.asDict(recursive=True) for row in table.orderBy("n").collect()]
    found = {
        "columns": table.dtypes,
        "rows": [{name: str(value) for name, value in row.items() if name != "at"} for row in rows],
        "times": [row[0] for row in table.orderBy("n").selectExpr("unix_micros(at)").collect()],
        "some": [row["n"] for row in table.where(condition).orderBy("n").collect()],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
