"""Master, members in sync and the place where two logs part: pure decisions of a group of brokers with one name."""
