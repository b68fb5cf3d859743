"""A store's commit log as a table, read from its files: which files, which splits, which records."""
