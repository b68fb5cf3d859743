"""Which pipelines there are. Modules are imported when somebody asks for one of them."""

import importlib
from typing import Any

from roquette.errors import ConfigError
from roquette.spark.pipelines.frame import Pipeline

# Name of the verb -> module that has PIPELINE.
MODULES: dict[str, str] = {
    "archive": "roquette.spark.pipelines.archive",
    "current-state": "roquette.spark.pipelines.current_state",
    "replay": "roquette.spark.pipelines.replay",
    "dlq": "roquette.spark.pipelines.dlq",
    "traffic": "roquette.spark.pipelines.traffic",
    "audit": "roquette.spark.pipelines.audit",
}


def find_pipeline(name: str) -> Pipeline[Any]:
    """The pipeline of that name. Raises ConfigError when there is none."""
    module = MODULES.get(name)
    if module is None:
        raise ConfigError(f"there is no pipeline {name}; there are: {', '.join(MODULES)}")
    found = importlib.import_module(module).PIPELINE
    assert isinstance(found, Pipeline), module
    return found
