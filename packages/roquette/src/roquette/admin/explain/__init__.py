"""The life of one message, from what brokers can tell of it."""
