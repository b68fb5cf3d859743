"""What a master's answers have to do with its replicas."""

from roquette.broker.floor.config import LiveConfig


class ReplicaState:
    """Kept by the feature that replicates, read where messages are taken in.

    Attributes:
        waits: answers wait until replicas have what they speak of (brokerRole SYNC_MASTER).
        refusal: why messages are refused now; None: they are not.
        receipt: the code of an answer to a send that waited for replicas: 0, or SLAVE_NOT_AVAILABLE while a group's master
            is alone in the set. `LogSync` reads it when the answer leaves.
    """

    __slots__ = ("receipt", "refusal", "waits")

    def __init__(self, live: LiveConfig) -> None:
        self.waits: bool = live.current.broker_role == "SYNC_MASTER"
        self.refusal: str | None = None
        self.receipt: int = 0
