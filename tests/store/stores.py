"""Parts of stores for tests."""

from roquette.store.format.segment import Segment
from roquette.store.log.commit_log import CommitLog
from roquette_testing.faulty_files import FaultyFiles


def log_of(data: bytes, base: int) -> CommitLog:
    """A log of one file that begins at `base`, a multiple of the `base` bytes it has: some bytes, then zeros."""
    files = FaultyFiles()
    files.make_dirs("/log")
    file = files.open_file(f"/log/{base:020d}", base, True)
    file.pwrite(data, 0)
    log = CommitLog(files, "/log", "/ahead", base)
    log.install([Segment(file, base, base, base)])
    return log
