"""Every table of the name server whose keys its peers choose has its bound here. Memory at the bound: docs/reference/limits.md."""

from typing import Final

from roquette.base import bounds
from roquette.base.bounds import Bound

BROKERS: Final = 10_000  # registered brokers, by cluster and address
TOPICS: Final = 1_000_000  # pairs of broker and topic
MAPPINGS: Final = 100_000  # pairs of broker and topic with mapped queues
FILTER_SERVERS: Final = 100  # of one broker
KV_ENTRIES: Final = 100_000  # namespaces and keys of the KV config
KV_CHARACTERS: Final = 16 << 20  # of all of them, with their values
NAME: Final = 1_024  # characters of a name, an address, a zone
WATCHES: Final = 100_000  # pairs of client and topic that is watched
WATCHED_TOPICS: Final = 5_000  # of one client
WATCH_BYTES: Final = 1 << 20  # of a request for them
CACHED_ROUTES: Final = 20_000  # encoded answers that are kept,
CACHED_BYTES: Final = 64 << 20  # and their size
LEFT_BROKERS: Final = 1_000  # that left, or are refused, and are remembered


class NameServerBounds(bounds.TableBounds):
    """The bounds of one name server's tables."""

    def __init__(self) -> None:
        silent = "those that send no heartbeat go by themselves"
        self.brokers = Bound("registered brokers", BROKERS, silent)
        self.topics = Bound(
            "pairs of broker and topic", TOPICS, "delete topics nobody uses (mqadmin deleteTopic)"
        )
        self.mappings = Bound("topics with mapped queues", MAPPINGS, silent)
        self.watches = Bound(
            "watched routes", WATCHES, "clients that are refused ask for routes every 30 s"
        )
        unused = "delete what nobody uses (mqadmin deleteKvConfig)"
        self.kv_entries = Bound("namespaces and keys of the KV config", KV_ENTRIES, unused)
        self.kv_characters = Bound("characters of the KV config", KV_CHARACTERS, unused)
