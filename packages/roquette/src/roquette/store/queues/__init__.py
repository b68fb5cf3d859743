"""The consume queues: their files, units and reads."""
