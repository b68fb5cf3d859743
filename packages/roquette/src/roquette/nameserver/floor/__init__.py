"""What a name server knows: its settings, its tables and their bounds. Processors work on it."""
