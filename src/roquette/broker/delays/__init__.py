"""Messages that wait in one of the delay levels."""
