"""The Spark room is tested only where its extra is installed."""

import importlib.util

collect_ignore_glob = (
    ["test_*.py"]
    if any(importlib.util.find_spec(m) is None for m in ("pyspark", "pyarrow"))
    else []
)
