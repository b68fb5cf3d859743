"""Data pipelines people run with one command: `roquette pipeline NAME`, each a small module over Spark.

Nothing here imports pyspark before a pipeline runs. A pipeline is a value of class `Pipeline` (frame.py), listed
in command.py: a dataclass of options, a plan for --dry-run, and a run that ends in a Result.
"""
