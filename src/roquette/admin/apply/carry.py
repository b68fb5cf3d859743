"""Seeing what every master has, and taking the steps of a plan."""

from collections.abc import Iterable, Sequence

import msgspec

from roquette.admin.apply.plan import Effect, Step, There
from roquette.admin.cluster import cluster_info, masters_of
from roquette.client.calls import Call
from roquette.client.change_calls import group_configs, put_group, put_topic
from roquette.client.inspection_calls import broker_settings, change_broker_settings, topic_configs
from roquette.client.operations import Ask, Operation, ask_all


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


def what_is_there() -> Operation[list[There]]:
    """Topics, groups and settings of every master.

    Raises:
        ClientError: a master does not answer: a plan without it would be half of one.
        ConfigError: no master is known.
    """
    masters = yield from masters_of()
    known = (yield from cluster_info()).cluster_addr_table
    clusters = {name: cluster for cluster, names in known.items() for name in names}
    topics = yield from ask_all((address, topic_configs()) for _, address in masters)
    groups = yield from ask_all((address, group_configs()) for _, address in masters)
    settings = yield from ask_all((address, broker_settings()) for _, address in masters)
    return [
        There(name, clusters.get(name, ""), address, topic.get(), group.get(), setting.get())
        for (name, address), topic, group, setting in zip(
            masters, topics, groups, settings, strict=True
        )
    ]


def carry_out(steps: Sequence[Step], *, refuses: bool) -> Operation[list[StepRow]]:
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


def _call(step: Step) -> Call[None]:
    if step.topic is not None:
        return put_topic(step.topic)
    if step.group is not None:
        return put_group(step.group)
    assert step.setting is not None
    return change_broker_settings(dict([step.setting]))


def rows(steps: Iterable[Step]) -> list[StepRow]:
    """Steps as they are shown."""
    return [
        StepRow(
            step.kind, step.subject, step.broker, step.now, step.wanted, str(step.effect), step.how
        )
        for step in steps
    ]
