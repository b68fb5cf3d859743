"""Checks of what brokers tell of themselves: time, versions, disk, descriptors, delays, transactions, tasks."""

import re
from collections.abc import Iterator
from typing import Final

from roquette.admin.cluster import left_words
from roquette.admin.doctor.findings import Looks, Severity, Sign, change_setting, command
from roquette.admin.facts import About, BrokerFacts, ClusterFacts, whole
from roquette.base.options import counted
from roquette.wire.bodies import ABSENT, ENDED, MASTER_ID, REFUSED, BrokerLeft

SKEW_MS: Final = 2_000
READ_BEHIND_S: Final = 10
HALF_EXTRA_MS: Final = 60_000
SILENT_CHECKS: Final = 3
DESCRIPTORS_WARN, DESCRIPTORS_ERROR = 0.8, 0.95
FORECAST_HOURS: Final = 72.0
FORECAST_FROM_S: Final = 600.0  # a rate over less says nothing about days
TASK_QUIET_S: Final = 120.0
_UNITS: Final = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}
_CAPACITY: Final = re.compile(
    r"Total : (\d{1,18}[.,]?\d*) (\w+), Free : (\d{1,18}[.,]?\d*) (\w+)\.?"
)
_TASK: Final = re.compile(
    r"failures=(\d{1,18}) wellAgo=(\d{1,18}\.?\d*)s setAside=(\d{1,18}) lastError=(.*)", re.S
)


def clock_skew(looks: Looks) -> Iterator[Sign]:
    """Brokers whose clocks are apart from ours."""
    told = [broker for broker in looks.now.answering() if broker.ahead_ms is not None]
    off = {broker.about: _off(broker) for broker in told if abs(_off(broker)) >= SKEW_MS}
    signs = {value > 0 for value in off.values()}
    if len(off) == len(told) > 1 and len(signs) == 1:
        most = max(off.values(), key=abs)
        yield Sign(
            About(other="this machine"),
            f"all {len(told)} brokers' clocks are {_apart(most)} its own",
            "the clock of the machine that asks is set wrong",
            "run an NTP client on it, such as chrony",
        )
        return
    for about, value in off.items():
        yield Sign(
            about,
            f"its clock is {_apart(value)} this machine's",
            "clocks are not kept in step: store times, delays, retention and searches by time are wrong by as much",
            "run an NTP client, such as chrony, on all machines",
        )


def _off(broker: BrokerFacts) -> int:
    """Return how far a clock is off at least: positive when it is ahead."""
    least, most = broker.ahead_ms or (0, 0)
    return least if least > 0 else min(most, 0)


def _apart(off_ms: int) -> str:
    return f"at least {abs(off_ms) / 1000:.1f} s {'ahead of' if off_ms > 0 else 'behind'}"


def versions(looks: Looks) -> Iterator[Sign]:
    """Brokers of one cluster with different versions."""
    for cluster in sorted({broker.cluster for broker in looks.now.answering()}):
        found: dict[str, list[str]] = {}
        for broker in looks.now.answering():
            version = broker.runtime.get("brokerVersionDesc", "")
            if broker.cluster == cluster and version:
                found.setdefault(version, []).append(broker.label)
        if len(found) > 1:
            yield Sign(
                About(other=f"cluster {cluster}"),
                "; ".join(f"{version}: {', '.join(labels)}" for version, labels in found.items()),
                "an upgrade was not finished: clients find a feature on one broker and not on the other",
                "bring all brokers to one version",
            )


def _ratio(broker: BrokerFacts) -> float | None:
    try:
        return float(broker.runtime["commitLogDiskRatio"])
    except (KeyError, ValueError):
        return None


def _percent(broker: BrokerFacts, key: str, default: float) -> float:
    """A setting in per cent as a ratio (Apache has some as ratios)."""
    try:
        value = float(broker.settings.get(key, default))
    except ValueError:
        return default / 100
    return value / 100 if value > 1 else value


def _capacity(broker: BrokerFacts) -> tuple[float, float] | None:
    """Total and free bytes of the disk under the log."""
    found = _CAPACITY.fullmatch(broker.runtime.get("commitLogDirCapacity", ""))
    if found is None or found[2] not in _UNITS or found[4] not in _UNITS:
        return None
    total, free = (float(text.replace(",", ".")) for text in (found[1], found[3]))
    return total * 1024 ** _UNITS[found[2]], free * 1024 ** _UNITS[found[4]]


def _bytes_per_s(looks: Looks, broker: BrokerFacts) -> float | None:
    """Return how fast the log grows: between two looks, else since its oldest message."""
    end = broker.number("commitLogMaxOffset")
    before = None if looks.before is None else looks.before.master(broker.name)
    if end is None:
        return None
    if before is not None and looks.seconds >= FORECAST_FROM_S:
        began = before.number("commitLogMaxOffset")
        return None if began is None else (end - began) / looks.seconds
    start, oldest = broker.number("commitLogMinOffset"), broker.number("earliestMessageTimeStamp")
    if start is None or oldest is None or oldest <= 0:
        return None
    span_s = (looks.now.at_ms - oldest) / 1000
    return (end - start) / span_s if span_s >= FORECAST_FROM_S else None


def disk(looks: Looks) -> Iterator[Sign]:
    """Disks that are full, or will be before retention frees them."""
    for broker in looks.now.answering():
        ratio, rate = _ratio(broker), _bytes_per_s(looks, broker)
        forced = _percent(broker, "diskSpaceCleanForciblyRatio", 85)
        refused = _percent(broker, "diskSpaceWarningLevelRatio", 90)
        cause = "messages come faster than retention deletes them"
        kept = max(1, whole(broker.settings.get("fileReservedTime", "")) or 72) // 2 or 1
        shorter = change_setting(broker, "fileReservedTime", kept)
        fix = f"{shorter} keeps messages for half as long, until its next start; or a larger disk"
        if ratio is not None and ratio >= forced:
            deletes = f"above {forced:.0%} messages are deleted before their time"
            yield Sign(
                broker.about,
                f"{ratio:.0%} of the disk is used; {deletes}, above {refused:.0%} sends are refused",
                cause + ", or something else fills the disk",
                fix,
                Severity.ERROR if ratio >= refused else None,
            )
            continue
        hours = None if rate is None else _hours_to(broker, forced, rate)
        if (
            hours is not None
            and hours < FORECAST_HOURS
            and hours < _hours_to_retention(looks, broker)
        ):
            yield Sign(
                broker.about,
                f"{ratio or 0:.0%} used, {(rate or 0) / 2**20:.2f} MiB/s written: {forced:.0%} in {hours:.1f} h",
                cause + f"; above {forced:.0%} they are deleted before their time",
                fix,
            )


def _hours_to(broker: BrokerFacts, limit: float, rate: float) -> float | None:
    capacity = _capacity(broker)
    if capacity is None or rate <= 0:
        return None
    total, free = capacity
    return max(0.0, free - total * (1 - limit)) / rate / 3600


def _hours_to_retention(looks: Looks, broker: BrokerFacts) -> float:
    """Until the oldest messages have their time: from then on as much is deleted as comes."""
    oldest = broker.number("earliestMessageTimeStamp") or looks.now.at_ms
    try:
        kept = float(broker.settings.get("fileReservedTime", "72"))
    except ValueError:
        kept = 72.0
    return kept + 24 - (looks.now.at_ms - oldest) / 3_600_000  # deleteWhen comes once a day


def refuses(looks: Looks) -> Iterator[Sign]:
    """Brokers that take no messages."""
    for broker in looks.now.answering():
        why = broker.runtime.get("messagesRefused", "no")
        if why != "no":
            cause, fix = "its store takes nothing", "free space, or raise what the text names"
            if broker.broker_id == 0 and "in-sync replicas" in why:
                cause = "fewer brokers have what is sent than minInSyncReplicas and inSyncReplicas ask for"
                fix = (
                    "start those that are away; or take messages with one copy: "
                    f"`roquette broker config set minInSyncReplicas=1 inSyncReplicas=1 --broker {broker.address}`"
                )
            yield Sign(broker.about, f"it refuses messages: {why}", cause, fix)


def set_aside(looks: Looks) -> Iterator[Sign]:
    """Brokers that keep a log, or the end of one, that their group does not have."""
    for broker in looks.now.answering():
        if (what := broker.runtime.get("logSetAside", "no")) != "no":
            yield Sign(
                broker.about,
                f"it has set aside {what}",
                "its log differed from its master's, or was damaged: what the master had took its place",
                f"look for messages that are missed ({command('store', 'grep', 'DIRECTORY', 'WORD')}), then delete the directory: the "
                "broker does so only when the disk is full",
            )


def ahead_of_master(looks: Looks) -> Iterator[Sign]:
    """Replicas outside of a group with messages that their master has lost."""
    for broker in looks.now.answering():
        for key in ("replicaAhead", "followsRefused"):
            if (what := broker.runtime.get(key, "no")) != "no":
                yield Sign(
                    broker.about,
                    what,
                    "the master lost power before its log was on the disk (ASYNC_FLUSH), or is another one: messages "
                    "that were acknowledged may stand on the replica alone",
                    "stop both brokers before more is written, then "
                    f"{command('store', 'take-tail', 'MASTER_STORE', '--from', 'REPLICA_STORE')}; "
                    "never empty the replica's store before",
                )


_WAYS_OUT: Final = {
    "identity": "give each broker its own brokerId and its own store, then start it again",
    "record": "set controllerAddr to the group's controllers and see that most of them run; where the record itself is lost, or "
    "older than a log, {promote}, with the ID that has most (where it is lost, without the option it says which)",
    "disk": "mend that disk, or free space on it: the member comes back by itself; on an empty disk it copies all from the master",
    "office": "start the brokers that it waits for; if they never come back, {promote}",
}


def group_trouble(looks: Looks) -> Iterator[Sign]:
    """Members that have no master, no record, no disk or no id of their own."""
    for broker in looks.now.answering():
        if kinds := broker.runtime.get("groupTroubleKinds"):
            promote = command("broker", "promote", broker.name, "ID", "--accept-data-loss")
            ways = [_WAYS_OUT[kind] for kind in kinds.split(",") if kind in _WAYS_OUT]
            yield Sign(
                broker.about,
                broker.runtime.get("groupTrouble", ""),
                "the group has fewer copies than it should, or no master: `roquette broker status` shows all of it",
                "; ".join(ways).format(promote=promote),
            )


def rotten(looks: Looks) -> Iterator[Sign]:
    """Members of groups whose disks have changed messages."""
    for broker in looks.now.answering():
        left, mended = (broker.number(key) or 0 for key in ("rottenMessages", "mendedMessages"))
        if left or mended:
            names = f"{command('store', 'fsck', 'DIRECTORY')} names them"
            way = f"start the members that are down, one may have them whole; {names}; then "
            yield Sign(
                broker.about,
                f"{left} messages have rotted and no other member has them, {mended} were mended from another member: "
                f"{broker.runtime.get('rottenFiles', '')}",
                "the disk gives other bytes than were written: bodies do not match their CRC",
                f"{way if left else ''}replace the disk: on an empty one the member copies all from the master",
                None if left else Severity.WARNING,
            )


def descriptors(looks: Looks) -> Iterator[Sign]:
    """Processes that are near their limit of open files."""
    for broker in looks.now.answering():
        used, limit = broker.number("openDescriptors"), broker.number("descriptorLimit")
        if used is None or not limit or used < limit * DESCRIPTORS_WARN:
            continue
        yield Sign(
            broker.about,
            f"{used} of {limit} descriptors are open ({used / limit:.0%})",
            "each connection and each file of the store costs one; without any, connections are refused",
            "raise the limit (ulimit -n, LimitNOFILE= of systemd), or find the clients that connect so often",
            Severity.ERROR if used >= limit * DESCRIPTORS_ERROR else None,
        )


def delayed_late(looks: Looks) -> Iterator[Sign]:
    """Delayed messages that should have been delivered."""
    for broker in looks.now.masters():
        late = [level for level in broker.delays if level.delivered < level.due]
        behind_s = broker.number("timerReadBehind") or 0
        words = [f"level {x.level}: {x.due - x.delivered} messages are due and wait" for x in late]
        if behind_s > READ_BEHIND_S:
            words.append(f"timers are {behind_s} s behind")
        if words:
            yield Sign(
                broker.about,
                "; ".join(words),
                "delivery stands still or is slower than what becomes due: a slow disk, or a task that fails",
                "look for RQ-D029 and the broker's log; a full disk refuses deliveries, too",
            )


def _ms(broker: BrokerFacts, key: str, default: int) -> int:
    found = whole(broker.settings.get(key, ""))
    return default if found is None else found


def half_old(looks: Looks) -> Iterator[Sign]:
    """Transactions that nobody has ended although their producers were asked."""
    for broker in looks.now.masters():
        interval_ms = _ms(broker, "transactionCheckInterval", 30_000)
        allowed_ms = _ms(broker, "transactionTimeOut", 6_000) + SILENT_CHECKS * interval_ms
        age_ms = looks.now.at_ms - broker.half_born_ms
        if broker.half_born_ms > 0 and age_ms > allowed_ms + HALF_EXTRA_MS:
            checks = broker.settings.get("transactionCheckMax", "15")
            yield Sign(
                broker.about,
                f"the oldest open transaction was begun {age_ms // 1000} s ago; producers are asked every "
                f"{interval_ms // 1000} s, {checks} times",
                "no producer of its group is online, or its check answers unknown",
                "start a producer of the group; what is never answered goes to TRANS_CHECK_MAX_TIME_TOPIC",
            )


def tasks(looks: Looks) -> Iterator[Sign]:
    """Tasks of a broker that fail, and entries they have set aside."""
    for broker in looks.now.answering():
        unwritten = broker.runtime.get("tablesUnwritten", "no") != "no"
        for key, line in sorted(broker.runtime.items()):
            found = _TASK.fullmatch(line) if key.startswith("task_") else None
            if found is None or (key, unwritten) == ("task_offsets", True):
                continue  # RQ-D042 tells that one
            failures, well_s, aside = int(found[1]), float(found[2]), int(found[3])
            more = failures - _failures_before(looks.before, broker, key)
            standing = failures > 0 and well_s > TASK_QUIET_S
            if standing or (looks.before is not None and more > 0) or aside:
                yield Sign(
                    About(broker.name, broker.broker_id, other=f"task {key.removeprefix('task_')}"),
                    f"{failures} failures, {aside} entries set aside, last went well {well_s:.0f} s ago; "
                    f"last error: {found[4]}",
                    "the task begins again after each failure, and what it does for others waits",
                    "the broker's log has the whole error: please report it if it is no full disk",
                    Severity.ERROR if standing else None,
                )


def _failures_before(before: ClusterFacts | None, broker: BrokerFacts, key: str) -> int:
    for each in before.brokers if before is not None else ():
        if each.address == broker.address:
            found = _TASK.fullmatch(each.runtime.get(key, ""))
            return int(found[1]) if found is not None else 0
    return 0


def wrong_protocol(looks: Looks) -> Iterator[Sign]:
    """Clients that speak something else to a broker's port."""
    for broker in looks.now.answering():
        count = broker.number("wrongProtocolConnections") or 0
        if looks.before is not None:
            for each in looks.before.brokers:
                if each.address == broker.address:
                    count -= each.number("wrongProtocolConnections") or 0
        if count > 0:
            when = "since it started" if looks.before is None else f"in {looks.seconds:.0f} s"
            yield Sign(
                broker.about,
                f"{counted(count, 'connection')} {when} spoke none of its protocols; the last: "
                f"{broker.runtime.get('wrongProtocolLast', '')}",
                "a client is pointed at the wrong port, or speaks TLS where there is none (or none where it must)",
                "find who has that address; brokers speak the remoting protocol and gRPC, consoles speak HTTP elsewhere",
                Severity.NOTE if looks.before is None else None,
            )


# Checks of what is not there: brokers, members of groups, and tables on the disk.


def absent(looks: Looks) -> Iterator[Sign]:
    """Brokers that left, that should be there and never came, or that are refused; of two looks those that both miss."""
    short, wanted = {broker.name for broker in _short(looks.now)}, looks.intent.brokers
    before = None if looks.before is None else {g.broker_addr for g in looks.before.gone(wanted)}
    for gone in looks.now.gone(wanted):
        told = gone.broker_name in short and gone.why != REFUSED
        if not told and (before is None or gone.broker_addr in before):
            yield Sign(
                About(broker=gone.broker_name, broker_id=gone.broker_id),
                left_words(gone),
                *_way_out(looks.now, gone),
                Severity.WARNING if gone.why == ENDED else None,
            )


def _way_out(facts: ClusterFacts, gone: BrokerLeft) -> tuple[str, str]:
    """Cause and cure."""
    if gone.why == REFUSED:
        return (
            "two brokers have one name and id, or one address: clients find the first one alone. One that was started "
            "again waits so until its old connection ends",
            f"on {gone.peer}, set a brokerName or brokerId that is free, and start it again with a store of its own",
        )
    what = "nobody reads or writes what it has"
    if gone.broker_id != MASTER_ID:
        what = "its master has one copy less"
    elif any(broker.name == gone.broker_name for broker in facts.brokers):
        what = "its replicas give what they have to readers, and nobody takes messages"
    over = f"gone for good: {command('broker', 'forget', gone.broker_name)}"
    if gone.why == ABSENT:
        over = (
            "not to be there, take its name out of the cluster's file, or "
            "`roquette context add NAME -n SERVERS --brokers NAMES` of those that are"
        )
    return (
        f"the process or its machine is down, or the way to it is cut: {what}",
        f"start it with its store and this cluster's namesrvAddr, and read why it ended in its log; if it is {over}",
    )


def _short(facts: ClusterFacts) -> list[BrokerFacts]:
    """Masters with fewer replicas in step than they should have."""
    numbers = [
        (b, b.number("replicasInStep"), b.number("replicasExpected")) for b in facts.masters()
    ]
    return [broker for broker, have, want in numbers if (have or 0) < (want or 0)]


def fewer(looks: Looks) -> Iterator[Sign]:
    """Groups, and masters with totalReplicas, that lack members or have some behind."""
    before = None if looks.before is None else {broker.name for broker in _short(looks.before)}
    for broker in _short(looks.now):
        if before is None or broker.name in before:
            have, want = (broker.number(key) or 0 for key in ("replicasInStep", "replicasExpected"))
            gone = [left_words(g) for g in looks.now.gone() if g.broker_name == broker.name]
            yield Sign(
                About(broker=broker.name),
                "; ".join([f"{have + 1} of {want + 1} members are in step", *gone]),
                "members are down, do not reach the master, or still copy: one more that fails may stop all sends, or "
                "lose messages; an upgrade waits until this is over",
                f"{command('broker', 'status', '--name', broker.name)} says who: start them and wait; of one that is gone "
                f"for good: {command('broker', 'forget', broker.name, '--id', 'ID')}",
            )


def forgotten(looks: Looks) -> Iterator[Sign]:
    """Name servers that do not tell who has left, where nobody says who is to be there."""
    asked = [server for server in looks.now.name_servers if not server.error]
    tells = any(server.cluster.brokers_left is not None for server in asked)
    if looks.now.brokers and not looks.intent.brokers and not tells:
        yield Sign(
            About(other=f"name server {', '.join(server.address for server in asked)}"),
            "it does not tell who has left",
            "it is Apache's, or of a version before: whether a broker is missing is not known",
            "`roquette context add NAME -n SERVERS --brokers NAMES` says which brokers are to be there",
        )


def unwritten(looks: Looks) -> Iterator[Sign]:
    """Brokers whose tables do not get to the disk."""
    for broker in looks.now.answering():
        if (what := broker.runtime.get("tablesUnwritten", "no")) != "no":
            yield Sign(
                broker.about,
                what,
                "what changes now (topics, groups, offsets) is gone after a restart: the files have another owner, as "
                "after a restore by root, or the disk is full",
                f"on its machine: {broker.runtime.get('tablesRemedy', '')}",
            )


def nobody(looks: Looks) -> Iterator[Sign]:
    """No broker at all."""
    if not looks.now.brokers and not looks.now.gone(looks.intent.brokers):
        yield Sign(
            About(other="cluster"),
            "no name server knows a broker",
            "none was started, or they register with other name servers",
            "start brokers whose namesrvAddr (-n) names these name servers",
        )
