"""The client's decisions: pure, without sockets, clocks or tasks."""
