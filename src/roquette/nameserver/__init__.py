"""The nameserver room."""
