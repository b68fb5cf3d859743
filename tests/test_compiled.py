"""A compile that failed falls back in silence: here it does not."""

import importlib
import os

import pytest
from tools import workspace

HOT = workspace.project_of("roquette")["tool"]["roquette"]["compiled"]


@pytest.mark.skipif(
    "ROQUETTE_EXPECT_COMPILED" not in os.environ, reason="runs on the compiled form: make unit"
)
@pytest.mark.parametrize("module", HOT)
def test_the_hot_modules_are_shared_objects(module: str) -> None:
    assert importlib.import_module(module).__file__.endswith(".so")
