"""Which pipelines there are. Modules are imported when somebody asks for one of them."""

import importlib
from typing import Any

from roquette.errors import ConfigError
from roquette.pipelines.kit.frame import Pipeline

# Name of the verb -> module that has PIPELINE.
MODULES: dict[str, str] = {
    "archive": "roquette.pipelines.archive.pipeline",
    "current-state": "roquette.pipelines.state.pipeline",
    "replay": "roquette.pipelines.replay.pipeline",
    "dlq": "roquette.pipelines.dlq.pipeline",
    "traffic": "roquette.pipelines.traffic.pipeline",
    "audit": "roquette.pipelines.audit.pipeline",
}


def find_pipeline(name: str) -> Pipeline[Any]:
    """The pipeline of that name. Raises ConfigError when there is none."""
    module = MODULES.get(name)
    if module is None:
        raise ConfigError(f"there is no pipeline {name}; there are: {', '.join(MODULES)}")
    found = importlib.import_module(module).PIPELINE
    assert isinstance(found, Pipeline), module
    return found
