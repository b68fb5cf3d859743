"""The timer's files: log, wheel and checkpoint."""
