"""The base room."""
