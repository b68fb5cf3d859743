"""The admin room."""
