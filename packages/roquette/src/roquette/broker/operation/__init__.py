"""What operators ask for, and the upkeep of a running broker."""
