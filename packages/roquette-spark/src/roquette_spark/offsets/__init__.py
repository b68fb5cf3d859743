"""Ends of queues and offsets of groups: the table of offsets, and progress mirrored to a group."""
