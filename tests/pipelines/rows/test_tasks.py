"""One task of a batch, without Spark: messages to files of a table and of its quarantine."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipelines.rows.test_decoder import COLUMNS, messages

from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.rows.tasks import BatchWork, Written, write_messages


@pytest.fixture
def work(tmp_path: Path) -> BatchWork:
    form = RowForm("json", COLUMNS)
    return BatchWork(7, {}, form, str(tmp_path / "T"), str(tmp_path / "T.quarantine"))


def test_a_task_says_what_it_wrote(work: BatchWork, tmp_path: Path) -> None:
    batches = [messages(b'{"n":1}', b"x"), messages(b'{"n":2,"late":3}')]

    found = write_messages(work, iter(batches), "abc")

    assert [file.path for file in found.good] == [
        "dt=2023-11-14/batch-0000000007-abc-00000.parquet"
    ]
    assert (found.rows, found.bad_rows, found.rescued, found.queues) == (2, 1, 1, {("b", 0): 3})
    assert [each["name"] for each in found.news["fields"]] == ["n", "at", "late"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_tasks_of_a_batch_are_added_up(work: BatchWork) -> None:
    total = Written()
    for attempt in ("a", "b"):
        total.add(write_messages(work, iter([messages(b'{"n":1}', b"")]), attempt))

    assert (total.rows, total.bad_rows, total.queues) == (2, 2, {("b", 0): 4})
    assert len({file.path for file in total.good}) == len(total.good) == 2


def test_a_task_that_fails_leaves_nothing(work: BatchWork, tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield messages(*[b'{"n":1}', b"x"] * 10)
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError):
        write_messages(work, broken(), "abc")

    assert list(tmp_path.rglob("*.parquet")) == []
