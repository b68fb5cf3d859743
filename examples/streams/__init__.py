"""Structured Streaming over topics: windows, joins, state and merges."""
