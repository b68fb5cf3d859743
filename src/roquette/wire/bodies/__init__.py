"""The bodies room."""
