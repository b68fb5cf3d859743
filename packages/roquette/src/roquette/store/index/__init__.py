"""The index: hash files, the keys of a record, and their check."""
