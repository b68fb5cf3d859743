"""Ten gigabytes of commit log, read by Spark without a broker: every record once, whatever the splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.spark.records import make_record

from roquette.message.record import encode_blank

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEGMENT = 1 << 30
FILES = 10


def write_segment(path: Path, base: int, first: int) -> int:
    """A full file of records of one size, numbered from `first` on; returns how many."""
    template = np.frombuffer(make_record(0, b"x" * 900, {"KEYS": "k", "TAGS": "t"}), np.uint8)
    size = len(template)
    count = (SEGMENT - 8) // size
    records = np.tile(template, (count, 1))
    numbers = np.arange(count, dtype=">i8")
    records[:, 20:28] = (numbers + first).astype(">i8").view(np.uint8).reshape(count, 8)
    records[:, 28:36] = (numbers * size + base).astype(">i8").view(np.uint8).reshape(count, 8)
    rest = SEGMENT - count * size
    with path.open("wb") as file:
        records.tofile(file)
        file.write(encode_blank(rest) + bytes(rest - 8))
    return count


def test_ten_gigabytes_come_out_once(spark: Any, tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    total = 0
    for index in range(FILES):
        base = index * SEGMENT
        total += write_segment(directory / f"{base:020d}", base, total)

    frame = spark.read.format("rocketmq_commitlog").option("splitBytes", "77m").load(str(tmp_path))
    found = frame.selectExpr(
        "count(*)",
        "sum(queue_offset)",
        "min(queue_offset)",
        "max(queue_offset)",
        "sum(length(body))",
    ).first()

    assert tuple(found) == (total, total * (total - 1) // 2, 0, total - 1, 900 * total)
    stretches = frame.sparkSession.read.format("rocketmq_commitlog").option("rows", "stretches")
    kinds = [row.kind for row in stretches.load(str(tmp_path)).collect()]
    assert kinds == ["blank"] * FILES
