"""`roquette pipeline archive`: topics to Parquet tables."""
