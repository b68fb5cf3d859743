"""`roquette doctor`"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.admin.command import Flag
from roquette.base.options import counted
from roquette.cli.apply import Expected, expected_of
from roquette.cli.connect import Cluster, Yes, confirm
from roquette.cli.exit_codes import UNHEALTHY
from roquette.cli.output import Output, say
from roquette.errors import ClientError

if TYPE_CHECKING:
    from roquette.admin.doctor.findings import Finding, Intent, Remedy
    from roquette.admin.facts import ClusterFacts
    from roquette.client.session import Session


class FindingRow(msgspec.Struct, frozen=True):
    """A finding, for programs. broker, group, topic: what it is about, where it is one. `fixable`: --fix does something
    about it."""

    code: str
    severity: str
    subject: str
    evidence: str
    cause: str
    fix: str
    broker: str
    group: str
    topic: str
    fixable: bool


def doctor(
    cluster: Cluster,
    *,
    file: Expected = None,
    seconds: Annotated[float, Flag("--for SECONDS", least=0)] = 0.0,
    production: bool = False,
    none_lost: bool = False,
    fix: bool = False,
    yes: Yes = False,
) -> None:
    """Examine a cluster: what is wrong, why, and what to do. Exit code 10 when something is.

    Each finding has a code that stays (docs/reference/doctor.md). Nothing is changed without --fix.

    Args:
        seconds: Look twice, so far apart: growing lag and stalled queues need it (30 or more).
        production: Settings that are for trials only are warnings.
        none_lost: No acknowledged message may be lost when a machine loses its power.
        fix: Show what can be mended in a way back, and do it.
    """
    from roquette.admin.doctor.findings import Intent

    intent = Intent(production, none_lost, expected_of(cluster, file))
    asyncio.run(_doctor(cluster, intent, seconds, fix, yes))


async def _doctor(cluster: Cluster, intent: "Intent", seconds: float, fix: bool, yes: bool) -> None:
    from roquette.admin.doctor.checks.diagnosis import is_healthy

    async with cluster.client("TOOLS_PRODUCER") as client:
        facts, findings = await _look(client.session, cluster, intent, seconds)
        _show(cluster, facts, findings)
        if fix:
            await _mend(client.session, cluster, findings, yes)
            return
    if not is_healthy(findings):
        raise typer.Exit(UNHEALTHY)


async def _look(
    session: "Session", cluster: Cluster, intent: "Intent", seconds: float
) -> "tuple[ClusterFacts, list[Finding]]":
    from roquette.admin.doctor.checks.diagnosis import diagnose
    from roquette.admin.doctor.examination import examine
    from roquette.base.clock import SystemClock

    clock, servers, before = SystemClock(), cluster.addresses(), None
    if seconds:
        before = await session.run(examine(servers, clock))
        say(f"first look done; the second one follows in {seconds:g} s")
        await asyncio.sleep(seconds)
    now = await session.run(examine(servers, clock))
    return now, diagnose(now, before, intent)


def _show(cluster: Cluster, facts: "ClusterFacts", findings: "list[Finding]") -> None:
    if cluster.output is not Output.TABLE:
        cluster.show([_row(finding, cluster.typed(finding.fix)) for finding in findings])
        return
    for finding in findings:
        print(f"{finding.code}  {finding.severity.upper():7}  {finding.subject}")
        for title, text in (
            ("seen", finding.evidence),
            ("why", finding.cause),
            ("fix", cluster.typed(finding.fix)),
        ):
            print(f"    {title:5} {text}")
    count = Counter(str(finding.severity) for finding in findings)
    there = (len(facts.brokers), "broker"), (len(facts.name_servers), "name server")
    looked_at = ", ".join(counted(*each) for each in (*there, (len(facts.groups), "group")))
    counts = ", ".join(counted(count[word], word) for word in ("error", "warning", "note"))
    say(f"{looked_at} online: {counts}")


def _row(finding: "Finding", fix: str) -> FindingRow:
    about = {name: getattr(finding.about, name) for name in ("broker", "group", "topic")}
    words = {name: getattr(finding, name) for name in ("code", "subject", "evidence", "cause")}
    fields = {**words, **about, "severity": str(finding.severity), "fix": fix}
    return FindingRow(**fields, fixable=finding.remedies != ())


async def _mend(session: "Session", cluster: Cluster, findings: "list[Finding]", yes: bool) -> None:
    """Show the plan, ask, do it; raises ClientError when a part of it was not done."""
    from roquette.admin.doctor.checks.diagnosis import is_healthy
    from roquette.admin.doctor.findings import apply_remedies, remedies_of

    plan: list[Remedy] = remedies_of(findings)
    if not plan:
        say("nothing here can be mended in a way back: each finding says what to do")
        raise typer.Exit(0 if is_healthy(findings) else UNHEALTHY)
    for remedy in plan:
        say(f"will {remedy.words}\n    to take it back: {cluster.typed(remedy.undo)}")
    confirm("do this", yes)
    failed = []
    for remedy, reason in zip(plan, await session.run(apply_remedies(plan)), strict=True):
        say(f"not done: {remedy.words}: {reason}" if reason else f"done: {remedy.words}")
        failed += [reason] if reason else []
    if failed:
        raise ClientError(f"{len(failed)} of {len(plan)} changes were not made: {failed[0]}")
    say("look again: roquette doctor")
    if not is_healthy([finding for finding in findings if not finding.remedies]):
        raise typer.Exit(UNHEALTHY)
