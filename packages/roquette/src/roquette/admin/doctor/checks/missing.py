"""Checks of what is not there: brokers, members of groups, and tables on the disk."""

from collections.abc import Iterator

from roquette.admin.cluster import left_words
from roquette.admin.doctor.findings import Looks, Severity, Sign, command
from roquette.admin.facts import BrokerFacts, ClusterFacts
from roquette.wire.bodies import ABSENT, ENDED, MASTER_ID, REFUSED, BrokerLeft


def absent(looks: Looks) -> Iterator[Sign]:
    """Brokers that left, that should be there and never came, or that are refused; of two looks those that both miss."""
    short, wanted = {broker.name for broker in _short(looks.now)}, looks.intent.brokers
    before = None if looks.before is None else {g.broker_addr for g in looks.before.gone(wanted)}
    for gone in looks.now.gone(wanted):
        told = gone.broker_name in short and gone.why != REFUSED
        if not told and (before is None or gone.broker_addr in before):
            yield Sign(
                f"broker {gone.broker_name}"
                + (f" (id {gone.broker_id})" if gone.broker_id else ""),
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
                f"broker {broker.name}",
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
            f"name server {', '.join(server.address for server in asked)}",
            "it does not tell who has left",
            "it is Apache's, or of a version before: whether a broker is missing is not known",
            "`roquette context add NAME -n SERVERS --brokers NAMES` says which brokers are to be there",
        )


def unwritten(looks: Looks) -> Iterator[Sign]:
    """Brokers whose tables do not get to the disk."""
    for broker in looks.now.answering():
        if (what := broker.runtime.get("tablesUnwritten", "no")) != "no":
            yield Sign(
                broker.label,
                what,
                "what changes now (topics, groups, offsets) is gone after a restart: the files have another owner, as "
                "after a restore by root, or the disk is full",
                f"on its machine: {broker.runtime.get('tablesRemedy', '')}",
            )


def nobody(looks: Looks) -> Iterator[Sign]:
    """No broker at all."""
    if not looks.now.brokers and not looks.now.gone(looks.intent.brokers):
        yield Sign(
            "cluster",
            "no name server knows a broker",
            "none was started, or they register with other name servers",
            "start brokers whose namesrvAddr (-n) names these name servers",
        )
