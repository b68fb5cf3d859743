"""Permission to do what is asked: one engine for every server's ports."""
