"""Spark looks for data sources in top-level modules named pyspark_*: this one names our table of offsets."""

from roquette_spark import default_source

__getattr__ = default_source("rocketmq_offsets", "offsets.source", "OffsetsDataSource")
