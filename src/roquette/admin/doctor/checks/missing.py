"""Checks of what is not there: brokers that left, members of groups, masters, and a place that two want."""

from collections.abc import Iterator

from roquette.admin.cluster import left_words
from roquette.admin.doctor.facts import BrokerFacts, Facts
from roquette.admin.doctor.findings import Looks, Severity, Sign
from roquette.wire.bodies import ENDED, MASTER_ID, REFUSED, BrokerLeft


def left(looks: Looks) -> Iterator[Sign]:
    """Brokers that name servers had within a day, and those that a context or a file names."""
    short = {broker.name for broker in _short(looks.now)}
    for gone in _lasting(looks):
        if gone.why == REFUSED or gone.broker_name in short:
            continue
        what = "nobody reads or writes what it has"
        if gone.broker_id != MASTER_ID:
            what = "its master has one copy less"
        elif any(broker.name == gone.broker_name for broker in looks.now.brokers):
            what = "its replicas give what they have to readers, and nobody takes messages"
        yield Sign(
            _label(gone),
            left_words(gone),
            f"the process or its machine is down, or the way to it is cut: {what}",
            "start it with its store, and look at the end of its log for the reason; where it is gone for good, roquette "
            f"broker forget {gone.broker_name}",
            Severity.WARNING if gone.why == ENDED else None,
        )
    seen = {gone.broker_name for gone in looks.now.left()} | {b.name for b in looks.now.brokers}
    for name in looks.intent.brokers:
        if name not in seen:
            yield Sign(
                f"broker {name}",
                "it is to be there, and no name server knows it",
                "it did not start, registers elsewhere, or left more than a day ago",
                "start it, with namesrvAddr of this cluster; or take it off the list: roquette context add, or the file",
            )


def _label(gone: BrokerLeft) -> str:
    return f"broker {gone.broker_name}" + (f" (id {gone.broker_id})" if gone.broker_id else "")


def _lasting(looks: Looks) -> Iterator[BrokerLeft]:
    """Of two looks those that both have."""
    before = None if looks.before is None else {each.broker_addr for each in looks.before.left()}
    yield from (g for g in looks.now.left() if before is None or g.broker_addr in before)


def _short(facts: Facts) -> list[BrokerFacts]:
    """Masters that have fewer replicas in step than they should."""
    return [
        broker
        for broker in facts.masters()
        if (broker.number("replicasInStep") or 0) < (broker.number("replicasExpected") or 0)
    ]


def fewer(looks: Looks) -> Iterator[Sign]:
    """Groups, and masters with totalReplicas, that lack members or have some behind."""
    before = None if looks.before is None else {b.name for b in _short(looks.before)}
    for broker in _short(looks.now):
        if before is not None and broker.name not in before:
            continue
        have, want = (broker.number(key) or 0 for key in ("replicasInStep", "replicasExpected"))
        gone = [g for g in looks.now.left() if g.broker_name == broker.name and g.why != REFUSED]
        words = [f"{have + 1} of {want + 1} members are in step", *map(left_words, gone)]
        if broker.runtime.get("messagesRefused", "no") != "no":
            words.append(f"it refuses messages: {broker.runtime['messagesRefused']}")
        yield Sign(
            f"broker {broker.name}",
            "; ".join(words),
            "members are down, cannot reach the master, or still copy: one more that fails may lose messages or stop all "
            "sends; an upgrade waits until this is gone",
            f"roquette broker status --name {broker.name} says who: start them and wait; one that is gone for good: "
            f"roquette broker forget {broker.name} --id ID",
        )


def masterless(looks: Looks) -> Iterator[Sign]:
    """Names of which replicas alone are registered, where nobody saw the master leave."""
    gone = {g.broker_name for g in looks.now.left() if g.broker_id == MASTER_ID}
    now, before = _masterless(looks.now), looks.before
    for name, replicas in now.items():
        told = any(broker.runtime.get("groupTroubleKinds") for broker in replicas)
        if name in gone or told or (before is not None and name not in _masterless(before)):
            continue
        yield Sign(
            f"broker {name}",
            f"{', '.join(f'id {b.broker_id} at {b.address}' for b in replicas)}; no master is registered",
            "the master is down since more than a day, or never came: nobody takes messages for its topics",
            "start the master with its store; of a group: roquette broker status",
        )


def _masterless(facts: Facts) -> dict[str, list[BrokerFacts]]:
    names = {broker.name for broker in facts.brokers}
    names -= {broker.name for broker in facts.brokers if broker.broker_id == MASTER_ID}
    return {name: [b for b in facts.brokers if b.name == name] for name in sorted(names)}


def two_of_one(looks: Looks) -> Iterator[Sign]:
    """Brokers whose place another one has."""
    for gone in _lasting(looks):
        if gone.why == REFUSED:
            yield Sign(
                _label(gone),
                left_words(gone),
                "two brokers have one name and id, or one address; clients find the first one alone, and a broker that was "
                "started again waits for the end of its old connection",
                f"on {gone.peer}, set brokerName (or brokerId) to one that is free, and start it again with its own store",
            )


def unwritten(looks: Looks) -> Iterator[Sign]:
    """Brokers whose tables do not get to the disk."""
    for broker in looks.now.answering():
        if (what := broker.runtime.get("tablesUnwritten", "no")) != "no":
            yield Sign(
                broker.label,
                what,
                "what changes now (topics, groups, offsets) is gone after a restart: the directory has another owner, as "
                "after a restore by root, or its disk is full",
                f"on its machine: {broker.runtime.get('tablesRemedy', '')}",
            )


def nobody(looks: Looks) -> Iterator[Sign]:
    """No broker at all."""
    if not looks.now.brokers and not looks.now.left() and not looks.intent.brokers:
        yield Sign(
            "cluster",
            "no name server knows a broker",
            "none was started, or they register with other name servers (namesrvAddr)",
            "start brokers whose namesrvAddr (-n) names these name servers",
        )
