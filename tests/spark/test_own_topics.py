"""The guard of shared servers finds a name that two modules use, in whichever order and process they run."""

from pathlib import Path

import pytest
from tests.spark.own_topics import claim, touched


def test_a_topic_is_one_modules_whoever_claims_it_first(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    claim(claims, "tests/a.py", ["grouped", "%RETRY%readers"])
    claim(claims, "tests/a.py", ["grouped"])  # again, or its other half in another worker
    claim(claims, "tests/b.py", ["regrouped"])

    with pytest.raises(AssertionError, match=r"tests/b\.py .*'grouped': 'tests/a\.py'"):
        claim(claims, "tests/b.py", ["fresh", "grouped"])


def test_what_is_made_written_or_given_other_queues_is_touched() -> None:
    before = {
        "idle": {("broker-a", 0): 7},
        "written": {("broker-a", 0): 7},
        "smaller": {("broker-a", 0): 7, ("broker-a", 1): 0},
        "gone": {("broker-a", 0): 7},
        "SCHEDULE_TOPIC_XXXX": {("broker-a", 2): 7},
    }
    after = {
        "idle": {("broker-a", 0): 7},
        "written": {("broker-a", 0): 8},
        "smaller": {("broker-a", 0): 7},
        "made": {("broker-a", 0): 0},
        "SCHEDULE_TOPIC_XXXX": {("broker-a", 2): 9},
    }

    assert touched(before, after) == {"written", "smaller", "made"}
