"""The blocking twin of the client: the same calls without `await`, over one event loop in a thread.

Handlers of `subscribe` run in a pool of threads, as many at a time as their `concurrency` says.
"""

from roquette.client.blocking_client import Client
from roquette.client.blocking_twins import (
    Job,
    Jobs,
    PullConsumer,
    PushConsumer,
    Transaction,
)

__all__ = ["Client", "Job", "Jobs", "PullConsumer", "PushConsumer", "Transaction"]
