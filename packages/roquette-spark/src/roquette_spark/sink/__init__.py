"""Writing frames to topics: options and columns checked once, rows to messages, messages to chunks."""
