"""Features of a member of a group of brokers: as master, and as replica. Loaded by members alone: groups are much code."""

from roquette.apps.features import broker_features, replica_features
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature
from roquette.broker.group.member import GroupMember
from roquette.broker.group.roles import GroupMaster, GroupQuorum, GroupSource
from roquette.broker.replication.master import MasterReplication
from roquette.proxy.settings import ProxySettings


def group_master_features(
    member: GroupMember, core: BrokerCore, proxy: ProxySettings | None = None
) -> list[Feature]:
    """Every feature of a group's member that is master."""
    replication = MasterReplication(core, GroupQuorum(core, member))
    return [GroupMaster(core, member, replication), *broker_features(core, replication, proxy)]


def group_replica_features(member: GroupMember, core: BrokerCore) -> list[Feature]:
    """Every feature of a group's member that is a replica."""
    source = GroupSource(core, member)
    return replica_features(core, source, source)
