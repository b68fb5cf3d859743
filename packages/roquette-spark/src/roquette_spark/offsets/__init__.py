"""Where queues end and where groups are: the table of offsets, and progress mirrored to a group."""
