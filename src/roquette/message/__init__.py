"""The message room."""
