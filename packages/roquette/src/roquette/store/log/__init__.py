"""What the log is: segments, appending, its files at start, walking, holes, the mark of how far it came."""
