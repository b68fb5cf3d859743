"""`roquette pipeline traffic`: who sends how much where, and do routes agree."""
