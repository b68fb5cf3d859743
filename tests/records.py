"""Records and the store's calls with their parts in a row, for tests that name most of them once."""

from roquette.message import record
from roquette.message.record_layout import Draft, Place
from roquette.store.queue_read import MATCH_ALL, ReadRequest, RecordFilter


def encode_record(
    topic, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, born_host, store_ms,
    store_host, reconsume_times, prepared_offset, body, properties,
):  # fmt: skip
    """One record's bytes."""
    draft = Draft(topic.decode(errors="replace"), queue_id, properties, body, born_ms, born_host)
    draft.flag = flag
    draft.sys_flag = sys_flag
    draft.reconsume_times = reconsume_times
    draft.prepared_offset = prepared_offset
    place = Place(topic, store_host, store_ms, queue_offset, physical_offset)
    return record.encode_record(draft, place)


def append_message(
    store, topic, queue_id, flag, sys_flag, born_ms, born_host, reconsume_times, properties,
    tags_code, body, now_ms, keys=None, uniq_key=None, prepared_offset=0, own=False,
):  # fmt: skip
    """Append a message; keys and a unique id that its properties do not have are added to them."""
    for name, value in (("KEYS", keys), ("UNIQ_KEY", uniq_key)):
        if value and f"{name}\x01" not in properties:
            properties += f"{name}\x01{value}\x02"
    draft = Draft(topic, queue_id, properties.encode(), body, born_ms, born_host)
    draft.flag = flag
    draft.sys_flag = sys_flag
    draft.reconsume_times = reconsume_times
    draft.prepared_offset = prepared_offset
    draft.unit_code = tags_code
    draft.own = own
    return store.append(draft, now_ms)


def append_batch(
    store, topic, queue_id, sys_flag, born_ms, born_host, reconsume_times, batch, now_ms
):
    """Append the messages of a client batch."""
    draft = Draft(topic, queue_id, b"", batch, born_ms, born_host)
    draft.sys_flag = sys_flag
    draft.reconsume_times = reconsume_times
    return store.append_batch(draft, now_ms)


def read_queue(store, topic, queue_id, offset, max_count, max_bytes, codes=None):
    """Read records of a queue; `codes`: tags codes to let pass."""
    wanted = MATCH_ALL if codes is None else RecordFilter(frozenset(codes))
    return store.read_queue(ReadRequest(topic, queue_id, offset, max_count, max_bytes, wanted))
