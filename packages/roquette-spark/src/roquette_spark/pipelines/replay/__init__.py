"""`roquette pipeline replay`: topics or a table into topics."""
