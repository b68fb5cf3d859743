"""A certificate authority of one's own, for the verbs."""

from roquette.remoting.pem import Authority, own_hosts

__all__ = ["Authority", "own_hosts"]
