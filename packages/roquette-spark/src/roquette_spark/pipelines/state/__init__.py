"""`roquette pipeline current-state`: change events to the current row of each key."""
