"""The table of checks, and what they say of one look or two."""

from typing import Final

from roquette.admin.doctor.checks import addresses, brokers, groups, queues
from roquette.admin.doctor.findings import Check, Finding, Intent, Looks, Severity, Sign
from roquette.admin.facts import About, ClusterFacts

MAX_EACH: Final = 50
"""Findings of one code that are listed; the last line counts the others."""

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

CHECKS: Final = (
    Check("RQ-D001", _E, "an advertised address cannot be reached", addresses.unreachable),
    Check("RQ-D002", _E, "a container's address is advertised", addresses.container_address),
    Check("RQ-D003", _E, "name servers disagree about routes", groups.disagreement),
    Check("RQ-D004", _E, "a name server does not know a broker", addresses.unknown_broker),
    Check("RQ-D005", _W, "a topic is not on every broker of its cluster", groups.on_one_broker),
    Check("RQ-D006", _W, "a topic came back with a broker", groups.came_back),
    Check("RQ-D007", _W, "a retry or dead-letter topic has no group", groups.orphaned),
    Check("RQ-D008", _W, "two clients have one id", groups.duplicate_ids),
    Check("RQ-D009", _E, "members of a group subscribe differently", groups.conflicting),
    Check("RQ-D010", _E, "a queue has no consumer", queues.unassigned),
    Check("RQ-D011", _N, "a group has more consumers than queues", groups.surplus_members),
    Check("RQ-D012", _E, "a queue is stalled", queues.stalled),
    Check("RQ-D013", _W, "a queue is locked", queues.locked),
    Check("RQ-D014", _W, "a group's filter passes nothing", queues.filtered_out),
    Check("RQ-D015", _E, "an offset is beyond its queue's end", queues.illegal_offset),
    Check("RQ-D016", _W, "lag grows", queues.lag_growing, two_looks=True),
    Check("RQ-D017", _W, "dead letters come", groups.dead_letters),
    Check("RQ-D018", _E, "delayed messages are late", brokers.delayed_late),
    Check("RQ-D019", _W, "half messages are old", brokers.half_old),
    Check("RQ-D020", _W, "the disk is full, or will be", brokers.disk),
    Check("RQ-D021", _W, "limits of disk differ between brokers", addresses.disk_limits),
    Check("RQ-D022", _W, "descriptors are near their limit", brokers.descriptors),
    Check("RQ-D023", _N, "acknowledged before it is on the disk", addresses.asynchronous_flush),
    Check("RQ-D024", _N, "topics are created by sends, beyond trials", addresses.auto_creation),
    Check("RQ-D025", _N, "the cluster is open beyond loopback", addresses.open_cluster),
    Check("RQ-D026", _W, "clocks are apart", brokers.clock_skew),
    Check("RQ-D027", _W, "versions are mixed", brokers.versions),
    Check("RQ-D028", _W, "clients speak a wrong protocol", brokers.wrong_protocol),
    Check("RQ-D029", _W, "a background task fails", brokers.tasks),
    Check("RQ-D030", _E, "a name server does not answer", addresses.silent_name_server),
    Check("RQ-D031", _E, "a broker does not answer", addresses.silent),
    Check("RQ-D032", _E, "a broker refuses messages", brokers.refuses),
    Check(
        "RQ-D033", _E, "messages were deleted before they were consumed", queues.behind_retention
    ),
    Check("RQ-D034", _W, "a consumer does not answer", groups.silent),
    Check("RQ-D035", _W, "a broker does not tell all", addresses.refused),
    Check("RQ-D036", _N, "messages were set aside", brokers.set_aside),
    Check("RQ-D037", _E, "a replica has what its master lacks", brokers.ahead_of_master),
    Check("RQ-D038", _E, "a member of a group cannot do its part", brokers.group_trouble),
    Check("RQ-D039", _E, "a disk has changed messages", brokers.rotten),
    Check("RQ-D040", _E, "a broker is not there", brokers.absent),
    Check("RQ-D041", _E, "a group has fewer members in step than it should", brokers.fewer),
    Check("RQ-D042", _E, "tables cannot be written", brokers.unwritten),
    Check("RQ-D043", _E, "there is no broker", brokers.nobody),
    Check("RQ-D047", _E, "messages are in queues that nobody reads", queues.out_of_reach),
    Check("RQ-D048", _W, "messages wait for a group without members", queues.nobody_there),
    Check("RQ-D049", _W, "messages were deleted for a group that is away", queues.deleted_unread),
    Check("RQ-D050", _W, "messages will be deleted before they are read", queues.deleted_soon),
    Check("RQ-D051", _W, "nobody has looked at dead letters", queues.dead_unseen),
    Check("RQ-D055", _N, "a broker is drained, or closed to sends", addresses.closed),
    Check("RQ-D056", _N, "who has left is not known", brokers.forgotten),
)
"""Codes never change their meaning."""

LEFT_OUT: Final = "RQ-D000"
"""What the bounds of the examination left out."""


def diagnose(
    now: ClusterFacts, before: ClusterFacts | None = None, intent: Intent | None = None
) -> list[Finding]:
    """Find what is wrong with a cluster: errors first, then by code."""
    looks = Looks(now, before, intent or Intent())
    found = [finding for check in CHECKS for finding in _findings(check, looks)]
    found += [
        Finding(
            LEFT_OUT,
            Severity.NOTE,
            About(other="examination"),
            f"not looked at: {what}",
            "an examination is bounded, so that it harms nobody",
            "what is left out may be wrong as well",
        )
        for what in now.left_out
    ]
    order = list(Severity)
    return sorted(found, key=lambda finding: (order.index(finding.severity), finding.code))


def is_healthy(findings: list[Finding]) -> bool:
    """Return True when there is nothing but notes."""
    return all(finding.severity is Severity.NOTE for finding in findings)


def _findings(check: Check, looks: Looks) -> list[Finding]:
    signs = list(check.run(looks))
    found = [_finding(check, sign) for sign in signs[:MAX_EACH]]
    if len(signs) > MAX_EACH:
        more = signs[MAX_EACH]._replace(about=About(other=f"{len(signs) - MAX_EACH} more"))
        found.append(_finding(check, more))
    return found


def _finding(check: Check, sign: Sign) -> Finding:
    severity = check.severity if sign.severity is None else sign.severity
    return Finding(
        check.code, severity, sign.about, sign.evidence, sign.cause, sign.fix, sign.remedies
    )
