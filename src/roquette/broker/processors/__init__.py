"""The processors room."""
