"""Structured Streaming as users write it: the examples of examples/streams, over a broker of our own."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from examples.streams import merge, orders, totals
from tests.spark.places import Place

from roquette.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark


def order(number: int, customer: str, minute: int, amount: float = 1.0) -> dict[str, Any]:
    at = f"2026-11-23T10:{minute:02}:00Z"
    return {"id": number, "customer": customer, "amount": amount, "at": at}


def send(place: Place, topic: str, bodies: list[dict[str, Any]]) -> None:
    with Client(place.address) as client:
        for body in bodies:
            client.send(topic, json.dumps(body).encode(), key=str(body["id"]))


def take(frame: "DataFrame", folder: Path, mode: str = "append") -> list[tuple[Any, ...]]:
    """Run a stream over what there is: all rows it has given so far under this name."""
    query = frame.writeStream.format("memory").queryName(folder.name).outputMode(mode)
    query = query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return [tuple(row) for row in frame.sparkSession.table(folder.name).collect()]


@pytest.fixture(scope="module")
def few_partitions(spark: Any) -> Iterator[Any]:
    """States of two partitions: 200 stores a batch take longer than all tests."""
    before = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    kept = {name: spark.conf.get(name) for name in (*before, totals.PROVIDER)}
    for name, value in before.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in kept.items():
        spark.conf.set(name, value)


def test_windows_close_with_the_watermark(
    few_partitions: Any, roquette: Place, tmp_path: Path
) -> None:
    topic = roquette.create("windows-orders", queues=1)
    frame = orders.sales(orders.rows(few_partitions, roquette.address, topic, orders.ORDER))
    send(roquette, topic, [order(1, "ann", 0, 2.0), order(2, "ann", 4, 3.0), order(3, "bob", 30)])

    rows = take(frame, tmp_path / "windows")

    assert [row[1:] for row in rows] == [("ann", 2, 5.0)]  # bob's window is open still


def test_orders_meet_their_payments_within_the_hour(
    few_partitions: Any, roquette: Place, tmp_path: Path
) -> None:
    topics = [roquette.create(f"join-{name}", queues=1) for name in ("orders", "payments")]
    send(roquette, topics[0], [order(1, "ann", 0), order(2, "bob", 1), order(3, "eve", 2)])
    late = {"id": 3, "at": "2026-11-23T11:03:00Z"}
    send(roquette, topics[1], [order(1, "", 5), order(2, "", 59), late])
    of_orders, of_payments = (
        orders.rows(few_partitions, roquette.address, topic, schema)
        for topic, schema in zip(topics, (orders.ORDER, orders.PAYMENT), strict=True)
    )

    rows = take(orders.paid(of_orders, of_payments), tmp_path / "paid")

    assert sorted(row[:2] for row in rows) == [(1, "ann"), (2, "bob")]


def test_totals_go_on_from_the_state_of_the_checkpoint(
    few_partitions: Any, roquette: Place, tmp_path: Path
) -> None:
    topic = roquette.create("totals-orders", queues=1)
    for number, amount in ((1, 2.0), (2, 3.5)):
        send(roquette, topic, [order(number, "ann", number, amount)])
        totals.run(few_partitions, roquette.address, topic, str(tmp_path))

    rows = few_partitions.read.parquet(str(tmp_path / "rows")).collect()

    assert sorted(map(tuple, rows)) == [("ann", 1, 2.0), ("ann", 2, 5.5)]


def test_a_merge_keeps_the_newest_row_and_a_repeated_one_changes_nothing(
    few_partitions: Any, roquette: Place, tmp_path: Path
) -> None:
    topic = roquette.create("merge-orders", queues=1)
    table = str(tmp_path / "table")
    frame = orders.rows(few_partitions, roquette.address, topic, orders.ORDER)
    send(roquette, topic, [order(1, "ann", 0), order(1, "ann", 9, 7.0), order(2, "bob", 1)])
    merge.start(frame, table, str(tmp_path / "first")).awaitTermination()
    send(roquette, topic, [order(2, "bob", 5, 4.0), order(1, "ann", 3, 9.0)])
    for checkpoint in ("first", "again"):  # the second one repeats all there is
        merge.start(frame, table, str(tmp_path / checkpoint)).awaitTermination()

    rows = DeltaTable(table).to_pyarrow_table().select(["id", "amount"]).to_pylist()

    assert sorted((row["id"], row["amount"]) for row in rows) == [(1, 7.0), (2, 4.0)]


def test_the_guides_snippets_run(spark: Any, roquette: Place, tmp_path: Path) -> None:
    """That of docs/howto/coming-from-kafka.md, and the stream of docs/spark.md."""
    topic = roquette.create("from-kafka", queues=1)
    send(roquette, topic, [order(1, "ann", 0)])
    docs = Path(__file__).resolve().parents[2] / "docs"
    names = {"spark": spark, "namesrv": roquette.address, "topic": topic}

    def snippets(page: str) -> list[str]:
        return re.findall(r"```python\n(.*?)```", (docs / page).read_text(), re.DOTALL)

    (view,) = snippets("howto/coming-from-kafka.md")
    stream = next(text for text in snippets("spark.md") if "readStream" in text)
    exec(view, names)
    here = {
        "127.0.0.1:9876": roquette.address,
        'subscribe="orders"': f'subscribe="{topic}"',
        "orders.parquet": f"{tmp_path}/orders.parquet",
        "orders.checkpoint": f"{tmp_path}/orders.checkpoint",
    }
    for written, meant in here.items():
        assert written in stream
        stream = stream.replace(written, meant)
    exec(stream, names)

    (row,) = spark.read.parquet(f"{tmp_path}/orders.parquet").collect()
    assert (row.queue_id, row.queue_offset) == (0, 0)
