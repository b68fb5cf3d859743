"""Stores without a broker: reading, checking and mending a directory that ours or Apache's broker left."""
