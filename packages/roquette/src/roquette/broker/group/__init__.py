"""A member of a group that elects its master: one process that runs a broker of one role after the other."""
