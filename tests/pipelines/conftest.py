"""Pipelines are tested as the Spark room is: only where the extra is installed, with the same session and servers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import archived_classes, collect_ignore_glob, no_plain_errors_left

if TYPE_CHECKING:
    from tests.spark.places import Place

__all__ = ["archived_classes", "collect_ignore_glob", "no_plain_errors_left"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Place]":
    """Servers of ours for the tests of a module."""
    from tests.spark.places import Place  # needs the extra

    place = Place("roquette", tmp_path_factory.mktemp("cluster"))
    yield place
    place.discard()
