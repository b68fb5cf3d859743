"""The timer's files: log and wheel, read and brought to the disk."""
