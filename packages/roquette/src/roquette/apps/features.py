"""Features of a broker: the list of a master's features, and that of a replica's.

A feature stands on the core. What it takes of another one is a function or a table, and is handed to it here.
In the order of its list a broker's features load, prepare, start, hear of messages, forget topics and write their files;
they stop in reverse order. Hence the tables come first, for who loads looks at them, then who puts them right after a
change of role; what puts messages again comes before what serves clients; who opens the broker to others comes last:
replicas, the v5 protocol, and the registration that brings clients.
"""

from typing import TYPE_CHECKING

from roquette.apps.local_proxy import LocalProxy
from roquette.broker.clients.client_calls import ClientCallProcessor
from roquette.broker.clients.heartbeat import (
    HeartbeatProcessor,
    LockProcessor,
    SubscriptionProcessor,
)
from roquette.broker.cluster.auto_creation import AutoCreation
from roquette.broker.cluster.feature import ClusterFeature
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, MasterSource
from roquette.broker.operation.consume_stats import ConsumeStatsProcessor, StatsFeature
from roquette.broker.operation.group_admin import GroupProcessor
from roquette.broker.operation.metrics import MetricsFeature
from roquette.broker.operation.offset_admin import OffsetAdminProcessor, OffsetProcessor
from roquette.broker.operation.settings import AdminProcessor
from roquette.broker.operation.store_requests import (
    ColdReadFeature,
    QueryProcessor,
    StoreMaintenance,
    UpkeepProcessor,
)
from roquette.broker.operation.topic_admin import TopicProcessor
from roquette.broker.operation.users import AccessFeature
from roquette.broker.pop.assignment import AssignmentFeature
from roquette.broker.pop.feature import PopFeature
from roquette.broker.pulling.feature import PullFeature
from roquette.broker.replication.ha_ticket import HaTickets, TicketSource
from roquette.broker.replication.master import ClassicQuorum, MasterReplication
from roquette.broker.replication.metadata_copy import MetadataCopy, OffsetTakeOver
from roquette.broker.replication.table_feed import TableFeed
from roquette.broker.sending.feature import SendFeature
from roquette.broker.timers.feature import DelayFeature, TimerFeature
from roquette.broker.transactions.feature import TransactionFeature
from roquette.proxy.settings import ProxySettings

if TYPE_CHECKING:
    from roquette.broker.replication.follower import Source


def broker_features(
    core: BrokerCore,
    replication: MasterReplication | None = None,
    proxy: ProxySettings | None = None,
) -> list[Feature]:
    """Every feature of a master."""
    cluster = ClusterFeature(core)
    created = AutoCreation(core).created
    delays, transactions = DelayFeature(core), TransactionFeature(core)
    pulls, pops = PullFeature(core), PopFeature(core)
    return [
        core.saved,
        OffsetTakeOver(core),
        delays,
        TimerFeature(core, delays.levels),
        StoreMaintenance(core),
        SendFeature(core, transactions.transactions.put_half, created),
        pulls,
        pops,
        AssignmentFeature(core, cluster.queues.find),
        transactions,
        *_of_both(core, pulls, pops),
        TableFeed(core, pops.pop.orders.to_wrapper),
        replication or MasterReplication(core, ClassicQuorum(core)),
        LocalProxy(core, proxy or ProxySettings(), created),
        cluster,
    ]


def replica_features(
    core: BrokerCore, source: MasterSource | None = None, followed: "Source | None" = None
) -> list[Feature]:
    """Every feature of a replica: it serves what changes neither its log nor its tables, and refuses the rest.

    Args:
        source: where its master is; without, what the name servers answer to its registration.
        followed: whose log it follows, and what it may do with it; without, that of `source`, as Apache's default.
    """
    from roquette.broker.replication import follower  # masters have none

    cluster = ClusterFeature(core)
    master = source or cluster.registration
    followed = followed or follower.ClassicSource(core, master)
    delays, transactions = DelayFeature(core), TransactionFeature(core)
    pulls, pops = PullFeature(core, master), PopFeature(core)
    absent = [
        delays,
        TimerFeature(core, delays.levels),
        SendFeature(core, transactions.transactions.put_half, AutoCreation(core).created),
        pops,
        transactions,
        TableFeed(core, pops.pop.orders.to_wrapper),
        HaTickets(core),
    ]
    return [
        follower.ReplicaRole(core, absent, master),
        core.saved,
        StoreMaintenance(core),
        pulls,
        AssignmentFeature(core, cluster.queues.find),
        *_of_both(core, pulls, pops),
        MetadataCopy(core, followed),
        follower.SlaveReplication(core, followed, TicketSource(core, master)),
        cluster,
    ]


def _of_both(core: BrokerCore, pulls: PullFeature, pops: PopFeature) -> list[Feature]:
    """Return what a master serves and a replica serves, or refuses by its promises."""
    return [
        HeartbeatProcessor(core),
        LockProcessor(core),
        SubscriptionProcessor(core),
        ClientCallProcessor(core),
        OffsetProcessor(core),
        OffsetAdminProcessor(core, pulls.wake_group),
        TopicProcessor(core),
        GroupProcessor(core),
        QueryProcessor(core),
        StatsFeature(core),
        ConsumeStatsProcessor(core),
        UpkeepProcessor(core),
        ColdReadFeature(core),
        AdminProcessor(core),
        AccessFeature(core),
        MetricsFeature(core, pops.pop.held),
    ]
