"""A broker with replicas: what a master sends, what a slave takes, and who is which."""
