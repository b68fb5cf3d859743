"""Seeing what every master has, and taking the steps of a plan."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from roquette.admin.apply.plan import Effect, PlanStep, There
from roquette.admin.apply.wanted import WantedCluster
from roquette.admin.cluster import cluster_info, masters_of
from roquette.client.calls import Call
from roquette.client.change_calls import group_configs, put_group, put_topic
from roquette.client.inspection_calls import broker_settings, change_broker_settings, topic_configs
from roquette.client.operations import Ask, Operation, ask_all

T = TypeVar("T")


class StepRow(msgspec.Struct, frozen=True):
    """A step as it is shown. `error`: why the broker did not do it."""

    kind: str
    subject: str
    broker: str
    now: str
    wanted: str
    effect: str
    how: str
    error: str = ""


def what_is_there(wanted: WantedCluster) -> Operation[list[There]]:
    """Topics, groups and settings of every master, those of them that are wanted somehow.

    Raises:
        ClientError: a master does not answer: a plan without it would be half of one.
        ConfigError: no master is known.
    """
    masters = yield from masters_of()
    known = (yield from cluster_info()).cluster_addr_table
    clusters = {name: cluster for cluster, names in known.items() for name in names}
    addresses = [address for _, address in masters]
    topics = yield from _asked(wanted.topics, addresses, topic_configs())
    groups = yield from _asked(wanted.groups, addresses, group_configs())
    settings = yield from _asked(wanted.settings, addresses, broker_settings())
    return [
        There(name, clusters.get(name, ""), address, topics[i], groups[i], settings[i])
        for i, (name, address) in enumerate(masters)
    ]


def _asked(
    wanted: Collection[object], addresses: list[str], call: Call[dict[str, T]]
) -> Operation[list[dict[str, T]]]:
    if not wanted:
        return [{} for _ in addresses]
    answers = yield from ask_all((address, call) for address in addresses)
    return [answer.get() for answer in answers]


def carry_out(steps: Sequence[PlanStep], *, refuses: bool) -> Operation[list[StepRow]]:
    """Take the safe steps, and with `refuses` those that refuse senders or consumers; what was taken.

    Settings come first, so that topics are made under them. A broker that does not do one does the others.
    """
    effects = {Effect.SAFE, Effect.REFUSES} if refuses else {Effect.SAFE}
    order = {"setting": 0, "topic": 1, "group": 2}
    taken = [step for step in steps if step.effect in effects]
    taken.sort(key=lambda step: order[step.kind])
    answers = yield [Ask(step.address, _call(step)) for step in taken]
    return [
        msgspec.structs.replace(row, error=answer.reason)
        for row, answer in zip(rows(taken), answers, strict=True)
    ]


def _call(step: PlanStep) -> Call[None]:
    if step.topic is not None:
        return put_topic(step.topic)
    if step.group is not None:
        return put_group(step.group, attributes=step.attributes)
    assert step.setting is not None
    return change_broker_settings(dict([step.setting]))


def rows(steps: Iterable[PlanStep]) -> list[StepRow]:
    """Steps as they are shown."""
    return [
        StepRow(
            step.kind, step.subject, step.broker, step.now, step.wanted, str(step.effect), step.how
        )
        for step in steps
    ]
