"""The remoting room."""
