"""The wire room."""
