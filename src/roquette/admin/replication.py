"""Groups that elect their master: how each member is doing, and an operator's order for another master."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from roquette.admin.cluster import cluster_info
from roquette.client import calls
from roquette.client.operations import Answer, Operation, ask, ask_all
from roquette.client.registers import put_register_if, register
from roquette.errors import AgreementError, BrokerError, ClientError, ConfigError
from roquette.replication.record import GroupRecord, decode_record, ordered_master, record_key
from roquette.wire.codes import ResponseCode

TRIES: Final = 50  # of a conditional write: the master renews its lease twice a second

MASTER: Final = "master"
ELECTED: Final = "elected"
REPLICA: Final = "replica"
SILENT: Final = "silent"


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a group. -1: it does not tell.

    Attributes:
        role: master; elected, when it is the record's master and does not serve as such (yet, or any more); replica;
            silent, when it does not answer.
        epoch: of its mastership. lag_bytes: behind the master's log.
        confirmed: its readers see the log up to here. lease_s: how long the master may count on its lease.
    """

    group: str
    broker_id: int
    role: str
    address: str
    in_step: bool
    epoch: int
    log_end: int
    confirmed: int
    lag_bytes: int
    lease_s: float
    error: str = ""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """A group by its record and by what its members say.

    Attributes:
        master: id of the broker that serves as master, 0: none does.
        in_step: ids of the brokers that have everything that was acknowledged.
        problems: why it is not healthy, in words; empty: it is.
    """

    cluster: str
    group: str
    epoch: int
    master: int
    in_step: list[int]
    lossy_epoch: int
    problems: list[str]
    members: list[MemberState]

    @property
    def healthy(self) -> bool:
        """There is a master, and all members are in step."""
        return not self.problems


class Found(NamedTuple):
    """A group's record, and where it was read."""

    address: str
    revision: int
    record: GroupRecord


def group_record(name_servers: Sequence[str], key: str) -> Operation[Found | None]:
    """The newest record that any of the name servers has; None: the group has none.

    Raises:
        ClientError: no controller answers. AgreementError: the record is not readable.
    """
    answers = yield from ask_all((address, register(key)) for address in name_servers)
    said = [answer for answer in answers if answer.value is not None]
    if not said:
        raise _no_controller(answers)
    found = [
        Found(answer.address, answer.value.revision, decode_record(answer.value.value))
        for answer in said
        if answer.value is not None and answer.value.revision
    ]
    return max(found, key=lambda each: each.record.number, default=None)


def _no_controller(answers: Sequence[Answer[Any]]) -> ClientError:
    reasons = "; ".join(f"{answer.address}: {answer.reason}" for answer in answers)
    codes = {getattr(answer.error, "code", None) for answer in answers}
    if codes == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}:
        return ClientError(
            "none of the name servers is a controller (namesrv --controller ...): brokers that ask etcd "
            "themselves are seen through a name server with the same --controller etcd://..."
        )
    return ClientError(f"the records of groups cannot be read: {reasons}")


def group_states(
    name_servers: Sequence[str], group: str | None = None, cluster: str | None = None
) -> Operation[list[GroupState]]:
    """Every group that elects its master, or the one of a name.

    Raises:
        ConfigError: there is no such group. ClientError: no controller answers.
    """
    info = yield from cluster_info()
    names = [
        (where, name)
        for where, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        if group in (None, name) and cluster in (None, where)
    ]
    if group is not None and not names:  # all of its brokers are gone, perhaps
        names = [(cluster or "DefaultCluster", group)]
    states = []
    for where, name in names:
        found = yield from group_record(name_servers, record_key(where, name))
        if found is not None:
            states.append((yield from _state(where, name, found.record)))
    if group is not None and not states:
        where = f" of cluster {cluster}" if cluster else ""
        raise ConfigError(f"no group {group}{where} has a record (enableControllerMode=true)")
    return states


def _state(cluster: str, name: str, record: GroupRecord) -> Operation[GroupState]:
    places = sorted(record.places.items())
    asks = ((place.address, calls.runtime_info()) for _, place in places)
    answers = yield from ask_all(asks)
    tables = {who: answer.value or {} for (who, _), answer in zip(places, answers, strict=True)}
    serves = record.master in tables and _number(tables[record.master], "groupLeaseLeftMs") > 0
    end = _number(tables.get(record.master, {}), "commitLogMaxOffset")
    members = []
    for (who, place), answer in zip(places, answers, strict=True):
        own_end = _number(tables[who], "commitLogMaxOffset")
        lease_ms = _number(tables[who], "groupLeaseLeftMs")
        role = SILENT if answer.error else REPLICA
        if who == record.master and not answer.error:
            role = MASTER if serves else ELECTED
        members.append(
            MemberState(
                group=name,
                broker_id=who,
                role=role,
                address=place.address,
                in_step=who in record.members,
                epoch=_number(tables[who], "groupEpoch"),
                log_end=own_end,
                confirmed=_number(tables[who], "commitLogConfirmOffset"),
                lag_bytes=max(0, end - own_end) if end >= 0 <= own_end else -1,
                lease_s=lease_ms / 1000 if lease_ms >= 0 else -1.0,
                error=answer.reason,
            )
        )
    return GroupState(
        cluster=cluster,
        group=name,
        epoch=record.epoch,
        master=record.master if serves else 0,
        in_step=list(record.members),
        lossy_epoch=record.lossy_epoch,
        problems=_problems(record, members, serves),
        members=members,
    )


def _problems(record: GroupRecord, members: Sequence[MemberState], serves: bool) -> list[str]:
    found = []
    if not record.master:
        found.append("nobody is master: the office was given back, or never taken")
    elif not serves:
        found.append(
            f"broker {record.master} is elected in epoch {record.epoch} and does not serve"
        )
    if missing := [member.broker_id for member in members if not member.in_step]:
        found.append(f"not in step: {missing}")
    if record.doubtful:
        found.append(
            f"may have lost what they had reported (power loss): {sorted(record.doubtful)}"
        )
    if record.ordered:
        found.append(f"broker {record.ordered} is ordered to be master, and is not yet")
    silent = [f"broker {m.broker_id} does not answer: {m.error}" for m in members if m.error]
    return found + silent


def _number(table: dict[str, str], key: str) -> int:
    try:
        return int(table.get(key, "-1"))
    except ValueError:
        return -1


def order_master(
    name_servers: Sequence[str], name: tuple[str, str], member: int, accept_loss: bool
) -> Operation[GroupRecord]:
    """Order that a member becomes master; the record as it is then. Nothing is written when it is master already.

    Args:
        name: the group's cluster and brokerName.

    Raises:
        AgreementError: that member may not be; the words say why. ConfigError: the group has no record.
    """
    key = record_key(*name)
    for _ in range(TRIES):
        found = yield from group_record(name_servers, key)
        if found is None:
            raise ConfigError(f"there is no record {key}: no group of that name elects its master")
        wanted = ordered_master(found.record, member, accept_loss)
        if wanted is found.record:
            return wanted
        try:
            done = yield from ask(
                found.address, put_register_if(key, found.revision, wanted.encode())
            )
        except BrokerError:  # it may be written all the same: the next read shows it
            continue
        if done:
            return wanted
    raise AgreementError(f"the record {key} changed under each of {TRIES} tries to order a master")
