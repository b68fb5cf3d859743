"""Which pipelines there are. Modules are imported when somebody asks for one of them."""

import importlib
from typing import Any

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Pipeline

# Name of the verb -> module that has PIPELINE.
MODULES: dict[str, str] = {
    "archive": "roquette_spark.pipelines.archive.pipeline",
    "current-state": "roquette_spark.pipelines.state.pipeline",
    "replay": "roquette_spark.pipelines.replay.pipeline",
    "dlq": "roquette_spark.pipelines.dlq.pipeline",
    "traffic": "roquette_spark.pipelines.traffic.pipeline",
    "audit": "roquette_spark.pipelines.audit.pipeline",
}


def find_pipeline(name: str) -> Pipeline[Any]:
    """The pipeline of that name. Raises ConfigError when there is none."""
    module = MODULES.get(name)
    if module is None:
        raise ConfigError(f"there is no pipeline {name}; there are: {', '.join(MODULES)}")
    found = importlib.import_module(module).PIPELINE
    assert isinstance(found, Pipeline), module
    return found
