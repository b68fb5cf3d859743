"""State of a name server: its settings, its tables and their bounds. Processors work on it."""
