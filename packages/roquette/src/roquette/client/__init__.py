"""The client room."""
