"""Who is master, and would it hold? Roles, leases, who is in step, and who was master in the last minutes."""

from collections import deque
from itertools import groupby
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.admin.replication import GroupState, MemberState, group_states
from roquette.console import charts, parts
from roquette.console.ask import View, ViewAsk
from roquette.console.views import broker as broker_view
from roquette.console.views.overview import brokers_grid
from roquette.errors import ClientError

PATHS: Final = ("/brokers/{broker}/members",)
LOOK_S: Final = 0.5
MOST_LOOKS: Final = 7_200
_STATES: Final = {"master": "ok", "replica": "ok", "elected": "warn", "silent": "bad"}

Seen = deque[tuple[int, int, int]]
"""(ms, master, epoch) of each look; master 0: nobody."""


async def show(ask: ViewAsk) -> View:
    name, cluster = ask.words["broker"], ask.cluster

    async def asked() -> list[GroupState]:
        try:
            return await cluster.run(group_states(cluster.name_servers, name))
        except ClientError:  # no name server keeps records of groups, or none answers
            return []

    cluster.watch()
    look = await cluster.looks.get(("members", name), asked, LOOK_S)
    command = ("broker", "status", "--name", name)
    title, head = f"{name}: masters and replicas", broker_view.head(ask, name, "members")
    if not look.value:
        states = [each for each in await cluster.brokers() if each.broker == name]
        why = "The broker with id 0 is master. Those of a group elect one with enableControllerMode=true; what a controller of Apache's decides is not asked."
        content = parts.panel("Processes", brokers_grid(ask, states))
        body: Node = [head, parts.empty("No election is known", why), content]
        return View(title, "brokers", body, command, 2)
    state = look.value[0]
    seen: Seen = cluster.masters.setdefault(name, deque(maxlen=MOST_LOOKS))
    if not seen or seen[-1][0] < look.at_ms:
        seen.append((look.at_ms, state.master, state.epoch))
    end = max((member.log_end for member in state.members), default=0)
    epoch = f"epoch {state.epoch}" + (f", ordered: {state.ordered}" if state.ordered else "")
    in_step = f"{len(state.in_step)} of {len(state.members)}"
    body = [
        head,
        _verdict(state),
        parts.tiles(
            ("Master", f"broker {state.master}" if state.master else "nobody", epoch),
            ("In step", in_step, "have all that was acknowledged"),
            ("Log", parts.size(end), "ends here at the furthest member"),
            ("Nobody for", _seconds(longest_gap(seen) / 1000), "at most, in what was watched"),
        ),
        parts.panel("Who was master", _timeline(seen), aside=parts.counted(len(seen), "look")),
        parts.panel("Members", _members(ask, state)),
    ]
    return View(title, "brokers", body, command, LOOK_S)


def _seconds(count: float) -> str:
    return f"{count:.1f}\u202fs" if count >= 0 else parts.UNKNOWN


def _verdict(state: GroupState) -> Element:
    if state.healthy:
        return parts.note("ok", "Healthy: any member that is in step may take over", *state.notes)
    if not state.master:
        return parts.note("bad", "Nobody is master: sends wait", *state.problems)
    return parts.note("warn", "It serves, and is not whole", *state.problems, *state.notes)


def longest_gap(seen: Seen) -> int:
    """The longest time in ms in which looks found no master, from the last with one to the next."""
    worst, before = 0, seen[0][0] if seen else 0
    for at, master, _ in seen:
        worst = max(worst, 0 if master and before == at else at - before) if not master else worst
        if master:
            before = at
    return worst


def _timeline(seen: Seen) -> Node:
    """One strip, a part for each mastership, as wide as it was long."""
    if len(seen) < 2:
        return parts.empty("Watching", "The strip grows while this page is open.")
    runs = [list(each) for _, each in groupby(seen, lambda look: (look[1], look[1] and look[2]))]
    starts = [run[0][0] for run in runs] + [seen[-1][0]]
    spans = [(run[0][1], starts[at], starts[at + 1]) for at, run in enumerate(runs)]

    def line(master: int, begin: int, end: int) -> Element:
        return h.li[
            h.i(f".m{min(6, master)}", aria_hidden="true"),
            parts.moment(begin),
            " ",
            h.strong[f"broker {master}" if master else "nobody"],
            parts.dim(f" for {_seconds((end - begin) / 1000)}"),
        ]

    strip = charts.strip(spans, "Masterships over time")
    return h.figure(".strip")[strip, h.ol[(line(*each) for each in spans[-6:])]]


def _members(ask: ViewAsk, state: GroupState) -> Node:
    in_step, behind = parts.dot("ok", "in step"), parts.dot("warn", "not in step")

    def promote(member: MemberState) -> Node:
        to = ask.url("act", "broker-promote", group=state.group, member=member.broker_id)
        return parts.dim(member.error) or (member.role == "replica" and h.a(href=to)["Promote"])

    return parts.grid(
        "Members",
        state.members,
        {
            "Member": lambda each: f"broker {each.broker_id}",
            "Role": lambda each: parts.dot(_STATES[each.role], each.role),
            "Address": lambda each: parts.code(each.address),
            "Step": lambda each: in_step if each.in_step else behind,
            "#Epoch": lambda each: str(each.epoch) if each.epoch >= 0 else parts.UNKNOWN,  # a name
            "#Log end": lambda each: each.log_end,
            "#Behind": lambda each: parts.size(each.lag_bytes),
            "#Lease": lambda each: _seconds(each.lease_s),
            "": promote,
        },
        key=lambda each: f"m-{each.broker_id}",
    )
