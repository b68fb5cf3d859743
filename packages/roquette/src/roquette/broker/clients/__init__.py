"""Clients of the broker: heartbeats, members, queue locks, questions passed on."""
