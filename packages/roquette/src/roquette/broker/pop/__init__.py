"""POP consumption: messages are handed out for a while, and come again unless they are acknowledged."""
