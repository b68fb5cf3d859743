"""Requests of operators, and the upkeep of a running broker."""
