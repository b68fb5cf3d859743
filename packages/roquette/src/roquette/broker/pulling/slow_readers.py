"""Groups that read far behind the end of the log lose their right to consume, where that is switched on.

Apache: BrokerController.protectBroker (disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold), every
three minutes. An operator gives the right back with UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
"""

import logging

from roquette.broker.floor.config import BrokerConfig
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")

BEAT_S = 180.0


def bytes_behind(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    """How much of the log lies between the message a group pulled last and the end; 0 at the end."""
    low = store.min_offset(topic, queue_id)
    units = store.queue_units(topic, queue_id, max(low, queue_offset), 1)
    return 0 if units is None else store.max_physical_offset - units[0][0]


def disable_slow_readers(
    config: BrokerConfig,
    store: MessageStore,
    groups: GroupTable,
    offsets: OffsetTable,
    now_ms: int,
) -> list[str]:
    """Take consumeEnable from groups that are too far behind; returns their names."""
    if not config.disable_consume_if_consumer_read_slowly:
        return []
    disabled: list[str] = []
    for topic, group, queues in offsets.pulled_pairs():
        for queue_id, offset in queues.items():
            behind = bytes_behind(store, topic, queue_id, offset)
            if behind <= config.consumer_fallbehind_threshold:
                continue
            if groups.disable_consume(group, now_ms):
                log.warning(
                    "group disabled, it reads slowly group=%s topic=%s queue_id=%d behind_bytes=%d",
                    group,
                    topic,
                    queue_id,
                    behind,
                )
                disabled.append(group)
            break
    return disabled
