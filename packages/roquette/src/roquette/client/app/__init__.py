"""Applications: consumers with typed values that start and end together, as one process."""
