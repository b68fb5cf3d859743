"""Spark 4.1 with Iceberg's own library reads what we write: rows, values and filters. Downloads both on first use."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.interop.peers import class_path

pytest.importorskip("pyiceberg")

from tests.pipelines.kit.older_spark import PYTHON, require_spark
from tests.pipelines.kit.test_iceberg_evolution import EXPECTED_NUMBERS, evolved
from tests.pipelines.kit.test_iceberg_table import SetClock, peer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("iceberg_spark.py")


@pytest.fixture(scope="module")
def jar() -> str:
    require_spark()
    return class_path("iceberg_spark")


def read(jar: str, path: Path, condition: str) -> Any:
    metadata = peer(path).metadata_location
    done = subprocess.run(
        [PYTHON, str(PROGRAM), jar, metadata, condition],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("joined", [False, True], ids=["as written", "compacted and expired"])
def test_spark_agrees(tmp_path: Path, jar: str, joined: bool) -> None:
    clock = SetClock()
    table = evolved(tmp_path, clock)
    if joined:
        assert table.compact(target_bytes=1 << 20, at_least=2).files_before == 3
        clock.ahead_ms = 60_000
        assert table.vacuum(keep_ms=0) == 3
    table.close()

    found = read(jar, tmp_path, "dt = '2013-01-01' and word is not null and n >= 28")

    expected = peer(tmp_path).scan().to_arrow().sort_by("n").to_pylist()
    assert [int(row["n"]) for row in found["rows"]] == EXPECTED_NUMBERS
    names = [name for name, _ in found["columns"]]
    assert names == list(expected[0])
    assert dict(found["columns"])["n"] == "bigint"
    plain = [name for name in names if name != "at"]
    assert found["rows"] == [{name: str(row[name]) for name in plain} for row in expected]
    times = [row["at"] for row in expected]
    assert found["times"] == [
        int(time.timestamp()) * 1_000_000 + time.microsecond for time in times
    ]
    assert found["some"] == [2**40 + 1]
