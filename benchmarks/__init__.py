"""Measurements beside Apache's own servers: `python -m benchmarks`, or `make bench`."""
