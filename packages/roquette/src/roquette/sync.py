"""The blocking twin of the client: the same calls without `await`, over one event loop in a thread.

Handlers of `subscribe` run in a pool of threads, as many at a time as their `concurrency` says.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from roquette.client.blocking_client import Client
from roquette.client.blocking_twins import (
    Consumer,
    MessageStream,
    PoppedMessages,
    Reader,
    Transaction,
)

if TYPE_CHECKING:
    from roquette.admin.blocking_admin import Admin

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "MessageStream",
    "PoppedMessages",
    "Reader",
    "Transaction",
]


def __getattr__(name: str) -> object:
    if name != "Admin":  # which clients do without
        raise AttributeError(f"module 'roquette.sync' has no attribute {name!r}")
    return import_module("roquette.admin.blocking_admin").Admin
