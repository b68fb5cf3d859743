"""Spark reads topics through this room: `format("rocketmq")`, batch and streaming, pure Python.

The room is found by Spark itself (module `pyspark_rocketmq`). People import from here `spark_session`, a local
session; `frozen_options`, a table that reads the same twice; `read_where`, one that reads little more than meets a
condition; `RocketMQOffsetCommitter`, progress as a consumer group's; `lag_of`, what waits
by a query's progress; `remove_duplicates`, what an idempotent write
stored twice; `kafka_compatible_view`, Kafka's column names; `plain_message`, our line in an exception of Spark's;
`tell_in_one_line`, which makes a script end with that line.
Nothing here imports pyspark before it is needed.
"""

import warnings
from collections.abc import Callable
from importlib import import_module

_PLACES = {
    "spark_session": "local.jdk",
    "frozen_options": "source.batch_reader",
    "read_where": "values.narrowing",
    "RocketMQOffsetCommitter": "offsets.committer",
    "lag_of": "offsets.committer",
    "remove_duplicates": "sink.duplicates",
    "kafka_compatible_view": "values.schema",
    "plain_message": "values.errors",
    "tell_in_one_line": "values.errors",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def default_source(source: str, place: str, name: str) -> Callable[[str], object]:
    """The `__getattr__` of a module in which Spark looks for a data source: it is imported when it is asked for."""

    def found(attribute: str) -> object:
        if attribute != "DefaultSource":
            raise AttributeError(attribute)
        try:
            return getattr(import_module(f"{__name__}.{place}"), name)
        except ImportError as error:
            # Spark imports such modules for any Python source: a failure must not break the others.
            warnings.warn(f"format {source} is not available: {error}", stacklevel=2)
            raise AttributeError(attribute) from error

    return found
