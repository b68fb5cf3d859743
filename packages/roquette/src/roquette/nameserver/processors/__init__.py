"""Requests that a name server serves: a module for each subject, with its rows."""
