"""`roquette pipeline audit`: is what producers meant there, once, in order, consumed?"""
