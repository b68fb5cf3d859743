"""Spark looks for data sources in top-level modules named pyspark_*: this one names our table of offsets."""

import warnings


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(name)
    try:
        from roquette_spark.offsets.source import OffsetsDataSource
    except ImportError as error:
        # Spark imports this module for any Python source: its failure must not break the others.
        warnings.warn(f"format rocketmq_offsets is not available: {error}", stacklevel=2)
        raise AttributeError(name) from error
    return OffsetsDataSource
