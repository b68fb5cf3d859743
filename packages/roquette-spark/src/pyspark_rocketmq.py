"""Spark looks for data sources in top-level modules named pyspark_*: this one names ours."""

import warnings


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(name)
    try:
        from roquette_spark.datasource import RocketmqDataSource
    except ImportError as error:
        # Spark imports this module for any Python source: its failure must not break the others.
        warnings.warn(f"format rocketmq is not available: {error}", stacklevel=2)
        raise AttributeError(name) from error
    return RocketmqDataSource
