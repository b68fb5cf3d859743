"""Half messages, their commits and roll-backs, and checks."""
