"""A dispatcher with the real rows of a server and a guard: frames in, codes and remarks out. No processor works."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS, body_of, ext_of, frame_of

from roquette.access.guard import Account, Audit, Guard, Scope
from roquette.access.model import (
    Acl,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    subject_of,
)
from roquette.access.needs import NEEDS, Needed
from roquette.access.policies import PolicyJudge, PolicyTable
from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.remoting.dispatcher import Dispatcher, Hooks, LaneLimits
from roquette.remoting.request import Peer, Reply, RequestContext, Row
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict
from roquette.wire.signature import Credentials, Signer

CLUSTER = "DefaultCluster"
OWN = Resource(ResourceType.CLUSTER, CLUSTER)
IP = "10.0.0.7"
SECRET = "a secret, not that short"
ROWS = {row.code: row for row in [*BROKER_ROWS, *NAMESRV_ROWS]}


@dataclass
class Book:
    """Accounts by name."""

    accounts: dict[str, Account] = field(default_factory=dict)

    def add(self, name: str, **options: Any) -> None:
        self.accounts[name] = Account(name, SECRET.encode(), **options)

    def find(self, access_key: str) -> Account | None:
        return self.accounts.get(access_key)


class Written(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: Any) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


@dataclass
class Answer:
    """Whether the request reached its processor, and what was answered."""

    processed: bool
    code: int
    remark: str | None


class Gate:
    """One guarded dispatcher; `book` and `table` may be changed at any time."""

    def __init__(self, guard: Guard | None = None, **scope: Any) -> None:
        self.book = Book()
        self.table = PolicyTable()
        self.processed: list[int] = []
        self.loop = asyncio.new_event_loop()
        clock = SystemClock()
        self.guard = guard or Guard(
            self.book,
            PolicyJudge(self.table),
            Scope(**{"cluster": CLUSTER} | scope),
            Audit(clock),
        )
        lanes = [LaneLimits(str(n), 1_000) for n in range(1 + max(r.lane for r in ROWS.values()))]
        self.dispatcher = Dispatcher(
            list(map(self._idle, ROWS.values())),
            lanes,
            clock,
            self.loop,
            Tasks(),
            Hooks(guard=self.guard.check),
        )

    def _idle(self, row: Row) -> Row:
        """The same row, whose processor only says that it was asked."""
        idle = Row(row.code, self._process, None, row.lane, row.promise)
        idle.decode, idle.coerce = row.decode, row.coerce
        return idle

    def _process(self, job: RequestContext, header: Any, body: bytes) -> Reply:
        self.processed.append(job.command.code)
        return Reply()

    def allow(self, name: str, *needs: Needed, ips: tuple[str, ...] = ()) -> None:
        """Exactly these rights: of each need one action."""
        entries = [
            PolicyEntry(resource, actions[-1:], ips, Decision.ALLOW) for resource, actions in needs
        ]
        self.table.put(Acl(subject_of(name), (Policy(PolicyType.CUSTOM, tuple(entries)),)))

    def ask(self, frame: bytes, ip: str = IP) -> Answer:
        """Send a frame over a new connection and run the turn."""
        transport = Written()
        peer = Peer(self.dispatcher, transport, 1, bytes(8), f"{ip}:4711")
        self.processed.clear()
        self.dispatcher.receive(peer, peer.wire.receive_data(frame))
        self.loop.run_until_complete(asyncio.sleep(0))
        (answer,) = WireConnection().receive_data(transport.data)
        return Answer(bool(self.processed), answer.code, answer.remark)

    def close(self) -> None:
        self.loop.close()


def signed(row: Row, name: str, secret: str = SECRET, **changed: str) -> bytes:
    """The sample request of a row, signed; `changed` ext fields are changed after signing."""
    body = body_of(row)
    ext = Signer(Credentials(name, secret)).sign(encode_dict(ext_of(row)), body)
    return frame_of(row.code, msgspec.json.decode(ext) | changed, body, version=513)


def needs_of(row: Row) -> list[Needed]:
    """What the sample request of a row needs."""
    ext = encode_dict(ext_of(row))
    header = None if row.coerce is None else row.coerce(msgspec.Raw(ext))
    return NEEDS[row.code].of(header, body_of(row), OWN)
