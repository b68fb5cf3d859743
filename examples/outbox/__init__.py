"""Orders in a database of SQLAlchemy, and a message of each: both are there, or neither."""
