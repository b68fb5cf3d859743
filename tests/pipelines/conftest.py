"""Pipelines are tested as the Spark room is: only where the extra is installed, with the same session and servers."""

from tests.spark.conftest import archived_classes, collect_ignore_glob, no_plain_errors_left

__all__ = ["archived_classes", "collect_ignore_glob", "no_plain_errors_left"]
