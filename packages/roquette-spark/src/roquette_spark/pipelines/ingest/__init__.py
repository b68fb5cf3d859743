"""Changes of a database into topics."""
