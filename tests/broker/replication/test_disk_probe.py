"""Whether a disk answers, by the clock of a process that may stand still itself."""

from roquette.broker.group.member import DiskProbe
from roquette_testing.faulty_files import FaultyFiles

PATIENCE_MS, LOOK_MS = 3_000, 100


def sick_after(probe: DiskProbe, begin: int, most: int) -> int | None:
    """When it is first called sick by one who looks all the time; None: not until `most`."""
    looks = range(begin, most, LOOK_MS)
    return next((ms for ms in looks if probe.sick(ms, PATIENCE_MS)), None)


def test_a_disk_that_does_not_answer_is_sick_after_the_patience() -> None:
    probe = DiskProbe(FaultyFiles(1), "/store", lambda: 0)
    assert sick_after(probe, 0, 10_000) == PATIENCE_MS + LOOK_MS
    assert (
        probe.sick(10_000, PATIENCE_MS)
        == "the disk below /store takes no messages: has not answered for more than 3 s"
    )


def test_a_process_that_stood_still_does_not_blame_its_disk() -> None:
    """Seen on a busy machine: a master gave the office away, and replicas left, for moments without a processor."""
    probe = DiskProbe(FaultyFiles(1), "/store", lambda: 0)
    assert sick_after(probe, 0, 2_000) is None
    assert sick_after(probe, 60_000, 61_000) is None
    assert sick_after(probe, 61_000, 70_000) is not None
