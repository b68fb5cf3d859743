"""The blocking twin of the client: the same calls without `await`, over one event loop in a thread.

Handlers of `subscribe` run one after the other in another thread.
"""

from roquette.client.blocking_client import Client

__all__ = ["Client"]
