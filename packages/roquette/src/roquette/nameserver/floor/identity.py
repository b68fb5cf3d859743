"""Identity of a broker, what its registration says, and the answer to that."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from roquette.errors import Refused
from roquette.nameserver.floor.config import NAME
from roquette.wire.bodies import DataVersion, TopicConfig, TopicQueueMappingInfo
from roquette.wire.codes import ResponseCode

BrokerKey = tuple[str, str]  # cluster, address


class BrokerIdentity:
    """Identity of who registers: the fields of the registration header."""

    __slots__ = ("address", "broker_id", "broker_name", "cluster")

    def __init__(self, cluster: str, broker_name: str, address: str, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_name = broker_name
        self.address = address
        self.broker_id = broker_id

    @property
    def key(self) -> BrokerKey:
        """Cluster and address: by these a registration is found again."""
        return (self.cluster, self.address)

    @property
    def place(self) -> tuple[str, str, int]:
        """Its place in the cluster, wherever it runs: cluster, name and id."""
        return (self.cluster, self.broker_name, self.broker_id)

    def check(self, *more: str | None) -> None:
        """Raise Refused when a name, an address or one of `more` is longer than what is kept."""
        for text in (self.cluster, self.broker_name, self.address, *more):
            if text is not None and len(text) > NAME:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the broker is not registered: a name or address has {len(text)} characters, "
                    f"more than {NAME}",
                )

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}[{self.broker_id}]@{self.address}"


class Claim(NamedTuple):
    """A registration whose group elects its master, and the epoch it names (`dataVersion.stateVersion`).

    The highest epoch of a group has its places: who names a lower one is deposed and does not know it yet.
    """

    identity: BrokerIdentity
    epoch: int

    def outranks(self, other: BrokerIdentity, epoch: int) -> bool:
        """Return True when it takes a place from a member of the same group that registered with `epoch`."""
        mine = self.identity
        same_group = (mine.cluster, mine.broker_name) == (other.cluster, other.broker_name)
        return same_group and self.epoch > epoch


@dataclass(slots=True, kw_only=True)
class Registration:
    """Registration of a broker: what it says of itself, and over which connection.

    Attributes:
        topics: all of them, or a part: one changed topic, or one chunk of a split registration.
        outside: where clients from outside reach it; "": where all do.
        modern: it is a broker of 5.0 or later, whose replicas may speak for a group without a master.
        delete_absent: topics that are not in `topics` are deleted (deleteTopicWithBrokerRegistration).
    """

    identity: BrokerIdentity
    topics: dict[str, TopicConfig]
    data_version: DataVersion
    connection: int
    now_ms: int
    ha_address: str = ""
    outside: str = ""
    timeout_ms: int | None = None
    modern: bool = False
    zone: str | None = None
    filter_servers: list[str] | None = None
    mappings: dict[str, TopicQueueMappingInfo] | None = None
    delete_absent: bool = False

    @property
    def claim(self) -> Claim | None:
        """Claim that it makes by its epoch; None: it names none, or is the word of a single topic."""
        epoch = self.data_version.state_version
        return Claim(self.identity, epoch) if epoch > 0 and len(self.topics) > 1 else None


class Registered:
    """Answer to a registration; the addresses are for replicas.

    Attributes:
        rest: takes in what `stepwise` left over. left_out: topics there was no room for.
    """

    __slots__ = ("ha_address", "left_out", "master_address", "rest")

    def __init__(self, ha_address: str | None = None, master_address: str | None = None) -> None:
        self.ha_address = ha_address
        self.master_address = master_address
        self.rest: Iterator[None] = iter(())
        self.left_out = 0
