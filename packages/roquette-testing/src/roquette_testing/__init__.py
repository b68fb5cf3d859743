"""The test kit: a broker inside the test, a clock that can be advanced, faults, and whole clusters in virtual time.

The names below are the public interface; they are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquette_testing.cluster import SimCluster, simulate
    from roquette_testing.embedded import EmbeddedBroker, EmbeddedClock, EmbeddedFaults
    from roquette_testing.faulty_port import Fault
    from roquette_testing.seeds import World, run_seed

__all__ = [
    "EmbeddedBroker",
    "EmbeddedClock",
    "EmbeddedFaults",
    "Fault",
    "SimCluster",
    "World",
    "run_seed",
    "simulate",
]

_HOMES = {
    "EmbeddedFaults": "embedded_faults",
    "Fault": "faulty_port",
    "SimCluster": "cluster",
    "World": "seeds",
    "run_seed": "seeds",
    "simulate": "cluster",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'roquette_testing' has no attribute {name!r}")
    return getattr(import_module(f"roquette_testing.{_HOMES.get(name, 'embedded')}"), name)
