"""Spark reads topics through this room: `format("rocketmq")`, batch and streaming, pure Python.

The room is found by Spark itself (module `pyspark_rocketmq`); people import `spark_session` from
`roquette.spark.jdk`. Nothing here imports pyspark before it is needed.
"""
