"""PySpark 4.1 in an environment of its own: the newest Spark for which Maven Central has both Delta's and Iceberg's jars."""

import sys
from typing import Final

from tests.interop.peers import ROOT, absent, alone, failure, require_java

PYTHON: Final = str(ROOT / ".venv-spark-4.1" / "bin" / "python")


def require_spark() -> None:
    """Install it if need be; without Java or the index of packages the test is left out (in CI it fails)."""
    require_java()
    with alone("spark-4.1"):
        tool = str(ROOT / "tools" / "spark_matrix.py")
        said = failure(sys.executable, tool, "--build", "4.1")
        if said:
            absent(f"PySpark 4.1 was not installed: {said}")
