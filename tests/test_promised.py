"""What docs/reliability.md and docs/security.md promise: each subject has tests that are marked for it, and the page of them is current."""

import re

import pytest
from tools.evidence_page import PAGE, ROOT, SUBJECTS, page, promises

MARKS = promises()
PROMISED = {
    name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("reliability", "security")
}


def test_the_page_of_evidence_is_current() -> None:
    assert PAGE.read_text() == page(), "run python tools/evidence_page.py"


def test_a_mark_stands_on_what_is_run() -> None:
    assert len(MARKS) > 250
    for mark in MARKS:
        path, _, name = mark.test.partition("::")
        assert mark.subject in SUBJECTS, mark
        assert path == "tests/access/attacks.py" or name.startswith("test_"), mark


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_subject_is_promised_and_shown(subject: str) -> None:
    """A page links to the subject's tests where it makes the promise."""
    anchor = f"reference/evidence.md#{subject.lower().replace(' ', '-')})"
    assert any(anchor in text for text in PROMISED.values())
    assert any(mark.subject == subject for mark in MARKS)


def test_no_page_links_to_a_subject_that_is_not_there() -> None:
    anchors = {subject.lower().replace(" ", "-") for subject in SUBJECTS}
    linked = re.findall(r"reference/evidence\.md#([\w-]+)", "".join(PROMISED.values()))
    assert set(linked) <= anchors
