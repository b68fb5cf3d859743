"""Groups that elect their master: how each member is doing, and an operator's order for another master."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from roquette.admin.cluster import cluster_info, left_words, require_one
from roquette.admin.command import Flag, OperationReport, command
from roquette.admin.drain import Run
from roquette.client import calls, operator_calls
from roquette.client.calls import Answer, Operation, ask, ask_all
from roquette.client.operator_calls import put_register_if, register
from roquette.errors import AgreementError, BrokerError, ClientError, ConfigError
from roquette.replication.record import (
    GroupRecord,
    decode_record,
    lost_record,
    ordered_master,
    record_key,
)
from roquette.wire.bodies import ClusterInfo
from roquette.wire.codes import ResponseCode

LOOK_S: Final = 0.05
WAIT_S: Final = 60.0
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

    NARROW: ClassVar = ("confirmed", "lease_s", "log_end", "epoch")


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """A group by its record and by what its members say.

    Attributes:
        master: id of the broker that serves as master, 0: none does.
        in_step: ids of the brokers that have everything that was acknowledged.
        ordered: id of the broker that an operator wants as master, and that is not yet; 0: none.
        problems: why it is not healthy, in words; empty: it is. notes: what else there is to say, as in an upgrade.
    """

    cluster: str
    group: str
    epoch: int
    master: int
    in_step: list[int]
    lossy_epoch: int
    problems: list[str]
    members: list[MemberState]
    ordered: int = 0
    notes: list[str] = []

    @property
    def healthy(self) -> bool:
        """There is a master, and all members are in step."""
        return not self.problems


class FoundRecord(NamedTuple):
    """A group's record, and where it was read."""

    address: str
    revision: int
    record: GroupRecord


def group_record(name_servers: Sequence[str], key: str) -> Operation[FoundRecord | None]:
    """The newest record that any of the name servers has; None: the group has none.

    Raises:
        ClientError: no controller answers. AgreementError: the record is not readable.
    """
    answers = yield from ask_all((address, register(key)) for address in name_servers)
    answered = [answer for answer in answers if answer.value is not None]
    if not answered:
        raise _no_controller(answers)
    found = [
        FoundRecord(answer.address, answer.value.revision, decode_record(answer.value.value))
        for answer in answered
        if answer.value is not None and answer.value.revision
    ]
    return max(found, key=lambda each: each.record.number, default=None)


def _no_controller(answers: Sequence[Answer[Any]]) -> ClientError:
    reasons = "; ".join(f"{answer.address}: {answer.reason}" for answer in answers)
    if all(map(_is_no_controller, answers)):
        return ClientError(
            "none of the name servers is a controller (namesrv --controller ...): brokers that ask etcd "
            "themselves are seen through a name server with the same --controller etcd://..."
        )
    return ClientError(f"the records of groups cannot be read: {reasons}")


OfCluster = Annotated[str | None, Flag("--cluster CLUSTER", "The group's brokerClusterName.")]


def _shown(groups: list[GroupState], **_: object) -> OperationReport[list[GroupState]]:
    """The members in a table, what is wrong in lines."""
    shown: list[str | list[MemberState]] = [[each for group in groups for each in group.members]]
    for group in groups:
        master = f"master is broker {group.master}" if group.master else "NO MASTER"
        shown.append(f"\n{group.group}: {master}, epoch {group.epoch}, in step: {group.in_step}")
        if group.lossy_epoch:
            shown.append(f"  messages were lost by order when epoch {group.lossy_epoch} began")
        shown += [f"  {words}" for words in (*group.problems, *group.notes)]
    return OperationReport(groups, shown, healthy=all(group.healthy for group in groups))


@command(empty="no group elects its master (enableControllerMode=true)", shows=_shown, watched=True)
def group_states(
    name_servers: Sequence[str],
    name: Annotated[str | None, Flag("--name BROKER")] = None,
    cluster: OfCluster = None,
) -> Operation[list[GroupState]]:
    """Show groups that elect their master: roles, epochs, lease, who is in step, lag.

    Exit code 10 when one of them has no master, or a member that is not in step.

    Args:
        name: Only this group (brokerName).

    Raises:
        ConfigError: there is no such group. ClientError: no controller answers.
    """
    info = yield from cluster_info()
    groups = [
        (where, group)
        for where, names in sorted(info.cluster_addr_table.items())
        for group in sorted(names)
        if name in (None, group) and cluster in (None, where)
    ]
    if name is not None and not groups:  # all of its brokers are gone, perhaps
        groups = [(cluster or "DefaultCluster", name)]
    states = []
    for where, group in groups:
        found = yield from group_record(name_servers, record_key(where, group))
        if found is not None:
            states.append((yield from _state(where, group, found.record)))
        elif told := (yield from _told_without_record(info, where, group)):
            states.append(told)
    if name is not None and not states:
        where = f" of cluster {cluster}" if cluster else ""
        raise ConfigError(f"no group {name}{where} has a record (enableControllerMode=true)")
    return states


def _told_without_record(
    info: ClusterInfo, cluster: str, name: str
) -> Operation[GroupState | None]:
    """A group whose record is lost, by what its members say; None: it is a broker without a group."""
    known = yield from _members(info, name)
    if not known:
        return None
    ends = [f"broker {m.broker_id} ends at {m.end} in epoch {m.epoch}" for m in known]
    problems = [f"the record {record_key(cluster, name)} is not there: {'; '.join(ends)}"]
    return GroupState(
        cluster=cluster,
        group=name,
        epoch=0,
        master=0,
        in_step=[],
        lossy_epoch=0,
        problems=problems + [f"broker {m.broker_id}: {m.trouble}" for m in known if m.trouble],
        members=[],
    )


class MemberReport(NamedTuple):
    """State of its group, and of itself, as a broker reports it.

    Attributes:
        last: the newest epoch of its marks. epoch: the one that its log, which ends at `end`, ends in.
    """

    broker_id: int
    group: str
    last: int
    epoch: int
    end: int
    seen: int
    trouble: str


def _members(info: ClusterInfo, name: str) -> Operation[list[MemberReport]]:
    """Those of a name that are members of a group, as far as they are registered and answer."""
    data = info.broker_addr_table.get(name)
    addresses = {} if data is None else {int(who): at for who, at in data.broker_addrs.items()}
    answers = yield from ask_all((at, calls.runtime_info()) for at in addresses.values())
    found = []
    for who, answer in zip(addresses, answers, strict=True):
        table = answer.value or {}
        if "groupRecordNumber" in table:
            found.append(
                MemberReport(
                    who,
                    table["groupId"],
                    last := _number(table, "groupLastEpoch"),
                    _number(table, "groupWrittenEpoch", last),
                    _number(table, "commitLogMaxOffset"),
                    _number(table, "groupRecordNumber"),
                    table["groupTrouble"],
                )
            )
    return sorted(found)


def _state(cluster: str, name: str, record: GroupRecord) -> Operation[GroupState]:
    places = sorted(record.places.items())
    asks = ((place.address, calls.runtime_info()) for _, place in places)
    answers = yield from ask_all(asks)
    tables = {who: answer.value or {} for (who, _), answer in zip(places, answers, strict=True)}
    errors = {who: answer.reason for (who, _), answer in zip(places, answers, strict=True)}
    for who, table in tables.items():
        # Another broker may have got the port of one that is dead.
        if record.group and not errors[who] and table.get("groupId") != record.group:
            errors[who] = f"who answers at {record.places[who].address} takes no part in this group"
            tables[who] = {}
    serves = record.master in tables and _number(tables[record.master], "groupLeaseLeftMs") > 0
    end = _number(tables.get(record.master, {}), "commitLogMaxOffset")
    members = []
    for who, place in places:
        own_end = _number(tables[who], "commitLogMaxOffset")
        lease_ms = _number(tables[who], "groupLeaseLeftMs")
        role = SILENT if errors[who] else REPLICA
        if who == record.master and not errors[who]:
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
                error=errors[who],
            )
        )
    return GroupState(
        cluster=cluster,
        group=name,
        epoch=record.epoch,
        master=record.master if serves else 0,
        in_step=list(record.members),
        lossy_epoch=record.lossy_epoch,
        problems=_problems(record, members, serves) + _troubles(tables),
        members=members,
        ordered=record.ordered,
        notes=_without_users(tables),
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
    if power := sorted({*record.doubtful} - {*record.unfit}):
        found.append(f"may have lost what they had reported (power loss): {power}")
    found += [f"broker {who} may lack something: {why}" for who, why in record.unfit.items()]
    if record.ordered:
        found.append(f"broker {record.ordered} is ordered to be master, and is not yet")
    silent = [f"broker {m.broker_id} does not answer: {m.error}" for m in members if m.error]
    return found + silent


def _troubles(tables: dict[int, dict[str, str]]) -> list[str]:
    told = {who: table.get("groupTrouble") for who, table in tables.items()}
    return [f"broker {who}: {words}" for who, words in told.items() if words]


def _without_users(tables: dict[int, dict[str, str]]) -> list[str]:
    """Members of before: users and rules are told sealed, which they neither ask for nor do (decision 38)."""
    if not any(_number(table, "groupUsers") > 0 for table in tables.values()):
        return []
    older = [
        who for who, table in tables.items() if "groupId" in table and "groupUsers" not in table
    ]
    words = "is of an older version: users and rules pass neither to it nor from it until it is upgraded"
    return [f"broker {who} {words}" for who in older]


def _question(name: str, member: int | None) -> str:
    return f"expect {name}{f' (id {member})' if member else ''} no more"


def _forgotten(words: list[str], name: str, **_: object) -> OperationReport[None]:
    return OperationReport(
        notes=[f"{name} is expected no more{': ' if words else ''}{'; '.join(words)}"]
    )


@command(asks=_question, shows=_forgotten)
def forget(
    name_servers: Sequence[str],
    name: Annotated[str, Flag("BROKER")],
    member: Annotated[int | None, Flag("--id ID", least=1)] = None,
) -> Operation[list[str]]:
    """Expect a broker that has left no more: `cluster` and `doctor` miss it no longer. One that is there stays.

    Args:
        member: Also this member of its group, for good.

    Returns:
        What was forgotten, in words.

    Raises:
        ConfigError: nothing has left. ClientError: a server did not do it; members that live stay.
    """
    asked = yield from ask_all((server, calls.cluster_info()) for server in name_servers)
    require_one(asked)
    found = [
        (answer.address, gone)
        for answer in asked
        for gone in (answer.value and answer.value.brokers_left) or ()
        if gone.broker_name == name and not gone.peer
    ]
    answers = yield from ask_all((at, operator_calls.forget_broker(gone)) for at, gone in found)
    if member is not None:
        call = operator_calls.clean_member(name, member)
        cleaned = yield from ask_all((server, call) for server in name_servers)
        answers.append(min(cleaned, key=_is_no_controller))
    if not answers:
        raise ConfigError(f"no name server remembers a broker {name} that has left")
    for answer in answers:
        answer.get()
    return sorted({left_words(gone) for _, gone in found})


def _is_no_controller(answer: Answer[Any]) -> bool:
    return getattr(answer.error, "code", None) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _number(table: dict[str, str], key: str, without: int = -1) -> int:
    try:
        return int(table.get(key, without))
    except ValueError:
        return -1


def order_master(
    name_servers: Sequence[str], cluster: str, group: str, member: int, accept_loss: bool
) -> Operation[GroupRecord]:
    """Order that a member becomes master; the record as it is then. Nothing is written when it is master already.

    Where the record is lost, or of another group than its members, a new one is begun, losses accepted.

    Args:
        cluster: the group's. `group`: its brokerName.

    Raises:
        AgreementError: that member may not be; the words say why. ConfigError: no group of that name elects its master.
    """
    key = record_key(cluster, group)
    info = yield from cluster_info()
    known = {m.broker_id: m for m in (yield from _members(info, group))}
    for _ in range(TRIES):
        found = yield from group_record(name_servers, key)
        if found is None and not known:
            raise ConfigError(f"there is no record {key}: no group of that name elects its master")
        if found is None or _is_of_others(found.record, known.get(member)):
            wanted = _begun_anew(key, known, member, accept_loss)
        else:
            wanted = ordered_master(found.record, member, accept_loss)
            if wanted is found.record:
                return wanted
        address, revision = (name_servers[0], 0) if found is None else found[:2]
        try:
            done = yield from ask(address, put_register_if(key, revision, wanted.encode()))
        except BrokerError:  # it may be written all the same: the next read shows it
            continue
        if done:
            return wanted
    raise AgreementError(f"the record {key} changed under each of {TRIES} tries to order a master")


def _is_of_others(record: GroupRecord, member: MemberReport | None) -> bool:
    groups = {record.group, member.group if member else ""} - {""}
    return len(groups) > 1


def _begun_anew(
    key: str, known: dict[int, MemberReport], member: int, accept_loss: bool
) -> GroupRecord:
    """A record for a group that has none of its own."""
    if member not in known:
        raise AgreementError(
            f"the record {key} is lost, and broker {member} does not answer: it is to run when it is ordered"
        )
    most = max(known.values(), key=lambda m: (m.epoch, m.end, m.last))
    if not accept_loss:
        raise AgreementError(
            f"the record {key} is lost. Of those that answer broker {most.broker_id} has most, up to {most.end} in epoch "
            f"{most.epoch}; broker {member} ends at {known[member].end} in epoch {known[member].epoch}. Order the one that "
            "has most, losses accepted: what only a broker has that does not answer now is lost"
        )
    last = max(m.last for m in known.values())
    seen = max(m.seen for m in known.values())
    return lost_record(known[member].group, last, seen, member, max(known))


def _promotion(group: str, member: int, accept_data_loss: bool, **_: object) -> str:
    loss = ", even if messages that were acknowledged are lost by it" if accept_data_loss else ""
    return f"make broker {member} the master of {group}{loss}"


@command(asks=_promotion)
async def promote(
    run: Run,
    name_servers: Sequence[str],
    tell: Callable[[str], None],
    group: Annotated[str, Flag("BROKER")],
    member: Annotated[int, Flag("ID", least=1)],
    *,
    cluster: OfCluster = None,
    accept_data_loss: bool = False,
) -> OperationReport[None]:
    """Make a member the master, as for an upgrade; waits until it is, and says how long nobody was.

    A member that is in step has everything that was acknowledged, and nothing is lost. Others need --accept-data-loss.

    Args:
        accept_data_loss: Also a member that is not in step: what only others have is lost.

    Raises:
        ClientError: it does not answer, did not stand in time, or is not master after WAIT_S.
    """
    cluster = cluster or "DefaultCluster"
    now: Callable[[], float] = asyncio.get_running_loop().time
    (before,) = await run(group_states(name_servers, group, cluster))
    if before.master == member:
        return OperationReport(
            notes=[f"broker {member} is master of {group} already, epoch {before.epoch}"]
        )
    if silent := [m for m in before.members if m.broker_id == member and m.error]:
        raise ClientError(f"broker {member} does not answer, and is not ordered: {silent[0].error}")
    last_s, old = now(), before.master
    await run(order_master(name_servers, cluster, group, member, accept_data_loss))
    tell(f"ordered; the master is {f'broker {old}' if old else 'nobody'} now")
    end_s = last_s + WAIT_S
    while now() < end_s:
        (state,) = await run(group_states(name_servers, group, cluster))
        if state.master == member:
            stopped = f"; nobody was for {now() - last_s:.2f} s at most" if old else ""
            done = f"broker {member} is master of {group}, epoch {state.epoch}{stopped}"
            return OperationReport(notes=[done])
        if state.master and state.ordered != member:
            raise ClientError(
                f"the order is over, and broker {member} did not stand in time: broker {state.master} is master, epoch "
                f"{state.epoch}; look at broker {member}, and order again"
            )
        if state.master == old:
            last_s = now()
        await asyncio.sleep(LOOK_S)
    raise ClientError(
        f"broker {member} is not master after {WAIT_S:.0f} s; the order stands: {'; '.join(state.problems)}"
    )
