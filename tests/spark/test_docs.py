"""What docs/spark.md and docs/reference/spark-features.md claim has a test of the name it gives, and its tables name what there is."""

import re
from pathlib import Path

from roquette.base.options import options_of
from roquette_spark.values.options import ReadOptions
from roquette_spark.values.schema import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "spark.md").read_text()
FEATURES = (ROOT / "docs" / "reference" / "spark-features.md").read_text()
OPTIONS = (ROOT / "docs" / "reference" / "spark-options.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT + FEATURES))
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(named) > 20
    assert [
        name for name in sorted(named) if f"def {name}(" not in sources and name not in files
    ] == []


def test_every_option_and_column_is_described() -> None:
    assert [name for name in options_of(ReadOptions) if f"`{name}`" not in OPTIONS] == []
    assert [name for name in COLUMNS if f"`{name}`" not in OPTIONS] == []
