"""What Spark's Python workers do without an event loop: connections, readers and senders over plain sockets."""
