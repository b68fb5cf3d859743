"""The apps room."""
