"""Messages come in: send, send back, reply."""
