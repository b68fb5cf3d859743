"""The commit log: its files, at start and while it grows, its holes, and what of it was set aside."""
