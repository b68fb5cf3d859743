"""The blocking twin of the client: the same calls without `await`, over one event loop in a thread.

Handlers of `subscribe` run in that thread; keep them short, or use the asynchronous client.
"""

from roquette.client.blocking_client import Client

__all__ = ["Client"]
