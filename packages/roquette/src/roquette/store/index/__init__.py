"""The index: hash files in a row."""
