"""Lines of the audit: names that nobody has proven hide no others."""

import logging

import pytest

from roquette.access.guard import Audit
from roquette_testing.embedded import ManualClock


@pytest.mark.promise(
    "Security", "the audit names who was refused; made-up names fill no log and hide no line"
)
def test_made_up_names_are_one_line_of_their_address_and_hide_nobodys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = Audit(ManualClock())
    with caplog.at_level(logging.WARNING, "roquette.audit"):
        for number in range(5_000):
            audit.unproven(f"nobody-{number}", 10, "10.6.6.6", "there is no such user")
        audit.unproven("alice", 10, "10.0.0.7", "there is no such user")
        audit.unproven("nobody", 10, "10.6.6.6", "the signature is wrong")
        audit.refused("bob", 10, None, "10.0.0.8", "no policy matches")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4 and audit.refusals == {"unproven": 5_002, "denied": 1}
    assert "user=nobody-0" in said[0] and "user=alice" in said[1] and "user=bob" in said[3]
