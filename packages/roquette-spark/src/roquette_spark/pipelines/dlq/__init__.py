"""`roquette pipeline dlq`: what lies in dead-letter topics, and some of it back."""
