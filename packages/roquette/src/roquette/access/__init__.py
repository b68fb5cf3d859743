"""Who may do what: one engine for every server's ports."""
