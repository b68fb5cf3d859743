"""The books of `group_chaos`: POP, what operators change in tables, and calls to the master."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.broker.pop_frames import Popped
from tests.simulation.pop_chaos import PopChaos

from roquette.access.model import AccessSettings
from roquette.client import operator_calls as calls
from roquette.client.calls import ask
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.record import decode_records
from roquette.wire.bodies.tables import UserInfo
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict
from roquette.wire.signature import Credentials
from roquette_testing.cluster import BROKER_PORT

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos

POPPED = "pops"
ROOT = Credentials("root", "r00t")
OPEN_WITH_USERS = AccessSettings(  # users are kept and copied, and nobody is asked who he is
    init_authentication_user='{"username":"root","password":"r00t"}',
    inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"1nner"}',
)
_R = RequestCode


class Pops(PopChaos):
    """The books of POP; the group is whom to ask."""

    topic = POPPED
    not_master = (
        ResponseCode.NO_PERMISSION,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )

    def __init__(self, world: "GroupChaos") -> None:
        super().__init__(messages=0)
        self.world = world

    def broker(self) -> str:
        return self.world.where()

    def take(self, message: Popped, now_ms: int) -> None:
        message.body = name_of(message.body)
        record = message.record
        if message.receipt.split(" ")[4] == "0":  # not from a retry topic
            self.world.show(POPPED, record.queue_id, record.queue_offset, message.body)
        super().take(message, now_ms)

    def early_ms(self, now_ms: int) -> int:
        """Clocks run 1 % off for as long as the world lasts, and are set."""
        return 20 + int(self.world.now * 20) + 2 * self.world.clocks_off_ms


class Tables:
    """An operator changes topics, groups and users, and knows what was acknowledged.

    Args:
        made: by kind of table and name, what an acknowledged change has made of it (0: it is deleted), and when.
        unsure: changes that no answer came to, or that a take-over may have forgotten.
    """

    def __init__(self, world: "GroupChaos") -> None:
        self.world = world
        self.made: dict[tuple[str, str], tuple[int, float]] = {}
        self.unsure: set[tuple[str, str]] = set()
        self.changes = 0

    async def run(self) -> None:
        rng = self.world.loop.random
        wire = Wire(self.world, "10.0.4.2")
        root = await self.world.client("10.0.4.3", credentials=ROOT)
        while self.world.producing:
            await asyncio.sleep(rng.uniform(0.2, 3))
            what = rng.choice(("topic", "topic", "group", "user"))
            key, value = (what, f"{what}-{rng.randrange(5)}"), rng.choice((0, *range(1, 9)))
            self.unsure.add(key)
            try:
                if what == "user":
                    done = await self._change_user(root, key[1], value)
                else:
                    answer = await wire.call(*_change(what, key[1], value))
                    alive = self.world.alive.get(wire.ip)
                    done = answer.code == 0 and alive is not None and alive.is_master
                if done:
                    self.made[key] = value, self.world.now
                    self.unsure.discard(key)
                    self.changes += 1
            except (OSError, TimeoutError):
                wire.close()

    async def _change_user(self, root: Client, name: str, value: int) -> bool:
        ip = self.world.where()
        user = UserInfo(
            username=name, password="secret", user_status="enable" if value % 2 else "disable"
        )
        steps = [calls.delete_user(name)]
        if value:  # made anew, that nothing depends on how it was
            steps += [calls.create_user(user), calls.update_user(user)]
        try:
            for step in steps:
                await root.session.run(ask(f"{ip}:{BROKER_PORT}", step))
        except ClientError:
            return False
        alive = self.world.alive.get(ip)
        return alive is not None and alive.is_master

    def taken_over(self, late_s: float) -> None:
        """Another master: changes of the last seconds before may be forgotten."""
        self.unsure |= {key for key, (_, at) in self.made.items() if at > self.world.now - late_s}

    def wrong(self, broker: Any, who: int) -> Iterator[str]:
        """What is known to have been made, and is not so at a broker."""
        for (what, name), (value, at) in self.made.items():
            if (what, name) in self.unsure:
                continue
            tables = broker.core.tables
            if what == "topic":
                topic = tables.topics.find(name)
                found = 0 if topic is None else topic.write_queues
            elif what == "user":
                user = broker.core.access.users.state.users.get(name)
                found = 0 if user is None else 2 - (user.user_status.value == "enable")
                value = value and 2 - value % 2
            else:
                group = tables.groups.known(name)
                found = 0 if group is None else group.retry_queue_nums
            if found != value:
                yield f"{what} {name} at broker {who}: {found}, not {value} of {at} s"


def _change(what: str, name: str, value: int) -> tuple[int, dict[str, Any], bytes]:
    if what == "group":
        if not value:
            return _R.DELETE_SUBSCRIPTIONGROUP, {"groupName": name}, b""
        body = b'{"groupName": "%s", "retryQueueNums": %d}' % (name.encode(), value)
        return _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body
    if not value:
        return _R.DELETE_TOPIC_IN_BROKER, {"topic": name}, b""
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": value, "writeQueueNums": value, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return _R.UPDATE_AND_CREATE_TOPIC, fields, b""


class Wire:
    """Calls to the master, one after the other.

    Args:
        here: the host that asks.
    """

    def __init__(self, world: "GroupChaos", here: str) -> None:
        self._world = world
        self._here = here
        self._writer: asyncio.StreamWriter | None = None
        self.ip = ""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def call(self, code: int, ext: dict[str, Any], body: bytes = b"") -> Command:
        """Raises OSError, TimeoutError."""
        return await self._world.cluster.run_on(self._here, self._call(code, ext, body))

    async def _call(self, code: int, ext: dict[str, Any], body: bytes) -> Command:
        async with asyncio.timeout(4):
            if self._writer is None:
                self._wire = WireConnection()
                self.ip = self._world.where()
                self._reader, self._writer = await asyncio.open_connection(self.ip, BROKER_PORT)
            header = encode_dict({k: str(v) for k, v in ext.items()})
            self._wire.send_request(code, header, body, False)
            self._writer.write(b"".join(self._wire.data_to_send()))
            while True:
                data = await self._reader.read(65536)
                if not data:
                    raise ConnectionResetError
                answers = self._wire.receive_data(data)
                if answers:
                    return answers[0]


def name_of(body: bytes) -> bytes:
    """A body without what only makes it long."""
    return body.rstrip(b"x")


def log_of(store: Any, start: int, end: int) -> bytes:
    """The bytes of a log."""
    found = []
    while start < end:
        found.append(store.read_raw(start, end - start))
        assert found[-1], f"the log has nothing at {start} of {end}"
        start += len(found[-1])
    return b"".join(found)


def records_of(store: Any, start: int, end: int, wanted: Callable[[str], bool]) -> list[Any]:
    """The records of some topics."""
    found = []
    offset = start
    while offset < end:
        data = store.record_at(offset)
        if data is None:  # the rest of a file
            size = store.config.segment_size
            offset += size - offset % size
            continue
        found += [record for record in decode_records(data) if wanted(record.topic)]
        offset += len(data)
    return found
