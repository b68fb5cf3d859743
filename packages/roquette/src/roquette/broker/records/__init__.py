"""What the broker writes into its own log, and when it is safe on the disk."""
