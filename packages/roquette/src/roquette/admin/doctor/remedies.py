"""Does what findings offer: changes that can be taken back."""

from collections.abc import Iterable, Sequence

from roquette.admin.doctor.findings import Finding, Remedy
from roquette.client import calls, inspection_calls
from roquette.client.operations import Operation, ask_all


def remedies_of(findings: Iterable[Finding]) -> list[Remedy]:
    """What can be done, each once."""
    return list(dict.fromkeys(remedy for finding in findings for remedy in finding.remedies))


def apply_remedies(remedies: Sequence[Remedy]) -> Operation[list[str]]:
    """Make the changes, side by side; returns why each was not made, "" for those that were."""
    answers = yield from ask_all((remedy.address, _call(remedy)) for remedy in remedies)
    return [answer.reason for answer in answers]


def _call(remedy: Remedy) -> calls.Call[None]:
    if remedy.topic:
        return calls.create_topic(remedy.topic, queues=remedy.queues, perm=remedy.perm)
    return inspection_calls.change_broker_settings({remedy.setting: remedy.value})
