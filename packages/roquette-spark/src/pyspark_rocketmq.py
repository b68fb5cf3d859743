"""Spark looks for data sources in top-level modules named pyspark_*: this one names ours."""

from roquette_spark import default_source

__getattr__ = default_source("rocketmq", "datasource", "RocketmqDataSource")
