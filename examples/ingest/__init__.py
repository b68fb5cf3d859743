"""Lines of a file become messages, whatever ends the program in the middle."""
