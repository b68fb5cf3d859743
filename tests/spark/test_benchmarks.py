"""The benchmarks of Spark run, small: one that nobody runs between two releases is dead when it is wanted."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "words",
    [
        ("spark_archive", "--kind", "interpreted", "--rows", "4000", "--repeats", "1"),
        ("spark_state", "--keys", "20000", "--batches", "3"),
        ("spark_sink", "--kinds", "interpreted", "--rows", "4000", "--repeats", "1"),
        ("spark_source", "--kind", "interpreted", "--rows", "4000", "--repeats", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_benchmark_measures_what_it_says(words: tuple[str, ...]) -> None:
    name, *options = words
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "interpreted" in done.stdout, done.stdout
