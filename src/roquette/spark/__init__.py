"""The spark room."""
