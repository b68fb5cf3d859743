"""The store's calls with their parts in a row, for tests that name most of them once."""

from roquette.store.queues.queue_read import MATCH_ALL, ReadRequest, RecordFilter


def read_queue(store, topic, queue_id, offset, max_count, max_bytes, codes=None):
    """Read records of a queue; `codes`: tags codes to let pass."""
    wanted = MATCH_ALL if codes is None else RecordFilter(frozenset(codes))
    return store.read_queue(ReadRequest(topic, queue_id, offset, max_count, max_bytes, wanted))
