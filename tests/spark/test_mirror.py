"""The mirror of the guide copies a cluster's topics to another one, and goes on where it was."""

from pathlib import Path
from typing import Any

import pytest
from examples.mirror import mirror
from tests.spark.places import Place
from tests.spark.test_servers import produce, source

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
def test_a_topic_is_on_both_clusters_once(spark: Any, roquette: Place, tmp_path: Path) -> None:
    topic = roquette.create("Mirrored")
    other = Place("roquette", tmp_path)
    try:
        other.create(topic, queues=2)
        for numbers in (range(120), range(120, 150)):
            produce(roquette.address, topic, numbers)
            given = (roquette.address, other.address, str(tmp_path / "state"), topic)
            mirror(spark, *given, availableNow=True).awaitTermination()

        there = source(spark.read, roquette.address, topic).load()
        copied = source(spark.read, other.address, topic).load()
        columns = ("body", "tags", "keys")
        assert sorted(copied.select(*columns).collect()) == sorted(there.select(*columns).collect())
        assert copied.count() == 150
    finally:
        other.discard()
