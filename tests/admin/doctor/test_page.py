"""docs/reference/doctor.md says of each code what the table of checks says."""

from pathlib import Path

from roquette.admin.doctor.checks.diagnosis import CHECKS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "doctor.md"


def test_the_page_has_every_code_with_its_severity_and_meaning() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| RQ-")]

    assert rows == [
        f"| {check.code} | {check.severity.value} | {check.meaning} | {'yes' if check.two_looks else ''} |"
        for check in CHECKS
    ]
