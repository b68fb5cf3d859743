"""Streams of orders and payments, and what is made of them: each function takes a frame and returns a frame.

Bodies are JSON: {"id": 7, "customer": "ann", "amount": 12.5, "at": "2026-11-23T10:00:00Z"}; a payment has `id` and `at`.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "id bigint, customer string, amount double, at timestamp"
PAYMENT = "id bigint, at timestamp"


def rows(
    spark: "SparkSession", namesrv: str, topic: str, schema: str, **options: str
) -> "DataFrame":
    """The bodies of a topic as columns, from its first message on; a body that is no JSON gives nulls."""
    messages = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=namesrv, subscribe=topic, startingOffsets="earliest", **options)
        .schema("body string")  # no other column is decoded
        .load()
    )
    return messages.select(f.from_json("body", schema).alias("row")).select("row.*")


def sales(orders: "DataFrame") -> "DataFrame":
    """What each customer bought in each five minutes; orders more than ten minutes late are left out."""
    window = f.window("at", "5 minutes")
    return (
        orders.withWatermark("at", "10 minutes")
        .groupBy(window, "customer")
        .agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
        .select(f.col("window.start").alias("start"), "customer", "orders", "amount")
    )


def paid(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
    """Orders with their payments: those that come within an hour of the order."""
    order = orders.withWatermark("at", "10 minutes").alias("o")
    payment = payments.withWatermark("at", "10 minutes").alias("p")
    within = f.expr("o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR")
    return order.join(payment, within).select("o.id", "o.customer", f.col("p.at").alias("paid_at"))
