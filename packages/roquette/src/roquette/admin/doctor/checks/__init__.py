"""Checks: pure functions from looks to signs, by subject."""
