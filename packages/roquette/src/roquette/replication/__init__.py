"""Who is master, who is in step, where two logs part: pure decisions of a group of brokers with one name."""
