"""Whether a group pulls or pops a topic, and who gets which queues when the broker assigns them. Pure.

Apache: MessageRequestModeManager, QueryAssignmentProcessor, AllocateMessageQueueAveragely and ...ByCircle.
"""

from collections.abc import Mapping

from roquette.base.bounds import Bound, unbounded
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.wire.bodies import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from roquette.wire.codes import ResponseCode

PULL = "PULL"
POP = "POP"
ANY_QUEUE = -1


class RequestModes:
    """Topic -> group -> mode; who sets a mode has checked that both exist.

    Attributes:
        changes: how often modes were set or forgotten.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        self.bound = bound or unbounded()
        self._count = 0
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self.changes = 0

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set the mode of a topic and group; raises Refused when there is no room for one more."""
        if mode.consumer_group not in self._modes.get(mode.topic, ()):
            self.bound.check(self._count, ResponseCode.SYSTEM_ERROR, "the request mode is not set")
            self._count += 1
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changes += 1

    def find(
        self, topic: str, group: str, *, default_mode: str, default_share: int
    ) -> SetMessageRequestModeRequestBody:
        """The mode in force; a retry topic without one is pulled."""
        found = self._modes.get(topic, {}).get(group)
        if found is not None:
            return found
        mode = PULL if topic.startswith(RETRY_PREFIX) else default_mode
        return SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=default_share if mode == POP else 0,
        )

    def forget(self, *, topic: str | None = None, group: str | None = None) -> bool:
        """A topic or a group is gone; True when something was known of it."""
        before = self._count
        if topic is not None:
            self._count -= len(self._modes.pop(topic, ()))
        else:
            for groups in self._modes.values():
                self._count -= groups.pop(group or "", None) is not None
        self.changes += self._count != before
        return self._count != before

    def load(self, modes: Mapping[str, Mapping[str, SetMessageRequestModeRequestBody]]) -> None:
        """Take over what a file held."""
        self._modes = {topic: dict(groups) for topic, groups in modes.items()}
        self._count = sum(map(len, self._modes.values()))

    def to_wrapper(self) -> MessageRequestModeSerializeWrapper:
        """The shape of messageRequestMode.json and of GET_ALL_MESSAGE_REQUEST_MODE."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes)


def average(queues: list[MessageQueue], clients: list[str], client: str) -> list[MessageQueue]:
    """AVG: neighbours, as even as possible. Empty for a client that is not a member."""
    if client not in clients:
        return []
    index, rest = clients.index(client), len(queues) % len(clients)
    extra = rest > 0 and index < rest
    size = max(1, len(queues) // len(clients) + (1 if extra and len(queues) > len(clients) else 0))
    start = index * size if extra else index * size + rest
    return queues[start : start + size]


def circle(queues: list[MessageQueue], clients: list[str], client: str) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: every n-th queue."""
    return queues[clients.index(client) :: len(clients)] if client in clients else []


STRATEGIES = {"AVG": average, "AVG_BY_CIRCLE": circle}


def assign(
    mode: SetMessageRequestModeRequestBody,
    strategy: str,
    queues: list[MessageQueue],
    clients: list[str],
    client: str,
) -> list[MessageQueue] | None:
    """The queues of one client of a group; None: it keeps what it has.

    Popping clients share: each gets every queue of a broker (queue id -1), or with `popShareQueueNum` its own queues
    and those of so many clients after it (allocate4Pop).
    """
    allocate = STRATEGIES.get(strategy)
    if allocate is None or not clients or not queues:
        return None
    if not client:
        return None  # "currentCID is empty"
    queues, clients = sorted(queues), sorted(clients)
    if mode.mode != POP:
        return allocate(queues, clients, client)
    share = mode.pop_share_queue_num
    if share <= 0 or share >= len(clients) - 1:
        return list(dict.fromkeys(MessageQueue(q.topic, q.broker_name, ANY_QUEUE) for q in queues))
    if client not in clients:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(share + 1):
        for queue in allocate(queues, clients, clients[(index + step) % len(clients)]):
            found[queue] = None
    return list(found)
