"""Which topics only some of their cluster's brokers have."""

from collections.abc import Sequence

from roquette.admin.doctor.facts import BrokerFacts
from roquette.message.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, is_system_topic


def partial_topics(
    masters: Sequence[BrokerFacts],
) -> dict[str, tuple[list[BrokerFacts], list[BrokerFacts]]]:
    """Topic -> (masters of a cluster that have it, masters that lack it), for the users' own topics."""
    found: dict[str, tuple[list[BrokerFacts], list[BrokerFacts]]] = {}
    names = {broker.name for broker in masters} | {broker.cluster for broker in masters}
    for cluster in sorted({broker.cluster for broker in masters}):
        here = [broker for broker in masters if broker.cluster == cluster and broker.topics]
        for topic in sorted({topic for broker in here for topic in broker.topics}):
            if topic in names or is_system_topic(topic) or topic.endswith(REPLY_TOPIC_SUFFIX):
                continue
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            lacks = [broker for broker in here if topic not in broker.topics]
            if lacks:
                found[topic] = [broker for broker in here if topic in broker.topics], lacks
    return found
