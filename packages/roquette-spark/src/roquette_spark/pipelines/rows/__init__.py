"""Messages to rows of a table in Parquet, in Spark's workers: pyarrow alone, no session and no JVM."""
