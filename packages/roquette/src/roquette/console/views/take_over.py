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
    """The view."""
    name, cluster = ask.words["broker"], ask.cluster

    async def asked() -> list[GroupState]:
        try:
            return await cluster.run(group_states(cluster.name_servers, name))
        except (
            ClientError
        ):  # no name server keeps records of groups, or none answers: the others say so
            return []

    look = await cluster.looks.get(("members", name), asked, LOOK_S)
    command = ("broker", "status", "--name", name)
    title = f"{name}: masters and replicas"
    if not look.value:
        states = [each for each in await cluster.brokers() if each.broker == name]
        nothing = parts.empty(
            "It elects no master",
            "The broker with id 0 is master for good: enableControllerMode=true has the group elect one.",
        )
        content = parts.panel("Processes", brokers_grid(ask, states))
        body: Node = [broker_view.head(ask, name, "members"), nothing, content]
        return View(title=title, place="brokers", body=body, command=command, live_s=2)
    state = look.value[0]
    seen: Seen = cluster.masters.setdefault(name, deque(maxlen=MOST_LOOKS))
    if not seen or seen[-1][0] < look.at_ms:
        seen.append((look.at_ms, state.master, state.epoch))
    end = max((member.log_end for member in state.members), default=0)
    body = [
        broker_view.head(ask, name, "members"),
        _verdict(state),
        parts.tiles(
            (
                "Master",
                f"broker {state.master}" if state.master else "nobody",
                f"epoch {state.epoch}" + (f", ordered: {state.ordered}" if state.ordered else ""),
            ),
            (
                "In step",
                f"{len(state.in_step)} of {len(state.members)}",
                "have all that was acknowledged",
            ),
            ("Log", parts.size(end), "ends here at the furthest member"),
            (
                "Nobody for",
                f"{longest_gap(seen) / 1000:.1f}\u202fs",
                "at most, in what was watched",
            ),
        ),
        parts.panel("Who was master", _timeline(seen), aside=parts.counted(len(seen), "look")),
        parts.panel("Members", _members(ask, state)),
    ]
    return View(title=title, place="brokers", body=body, command=command, live_s=LOOK_S)


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
    runs = [
        list(each) for _, each in groupby(seen, lambda look: (look[1], look[2] if look[1] else 0))
    ]
    starts = [run[0][0] for run in runs] + [seen[-1][0]]
    spans = [(run[0][1], starts[at], starts[at + 1]) for at, run in enumerate(runs)]
    return h.figure(".masters")[
        charts.strip(spans, "Masterships over time"),
        h.ol[
            (
                h.li[
                    h.i(f".m{min(6, master)}", aria_hidden="true"),
                    parts.moment(begin),
                    " ",
                    h.strong[f"broker {master}" if master else "nobody"],
                    h.span(".dim")[f" for {(end - begin) / 1000:.1f}\u202fs"],
                ]
                for master, begin, end in spans[-6:]
            )
        ],
    ]


def _members(ask: ViewAsk, state: GroupState) -> Node:
    def row(member: MemberState) -> tuple[Node, ...]:
        promote = ask.url("act", "broker-promote", group=state.group, member=member.broker_id)
        return (
            f"broker {member.broker_id}",
            parts.dot(_STATES[member.role], member.role),
            parts.code(member.address),
            parts.dot("ok", "in step") if member.in_step else parts.dot("warn", "not in step"),
            parts.number(member.epoch),
            parts.number(member.log_end),
            parts.size(member.lag_bytes),
            f"{member.lease_s:.1f}\u202fs" if member.lease_s >= 0 else parts.UNKNOWN,
            h.span(".dim")[member.error]
            if member.error
            else h.a(href=promote)["Promote"]
            if member.role == "replica"
            else None,
        )

    return parts.grid(
        ["Member", "Role", "Address", "Step", "#Epoch", "#Log end", "#Behind", "#Lease", ""],
        [row(each) for each in state.members],
        caption="Members",
        keyed=[f"m-{each.broker_id}" for each in state.members],
    )
