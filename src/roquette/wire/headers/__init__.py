"""The headers room."""
