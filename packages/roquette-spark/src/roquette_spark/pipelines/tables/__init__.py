"""Tables of Delta Lake and Iceberg: files are added once, and read back; rows come from `rows`."""
