"""Promise of an answer: where the effect of a request is when SUCCESS leaves. Each row of a table declares it."""

from enum import Enum


class Promise(Enum):
    """The value says what survives what; docs/reference/answers.md prints it."""

    NOTHING = "changes nothing"
    MEMORY = "in memory, by nature: it ends with the process, and the peers say it again"
    PROCESS = "handed to the system: survives kill -9; a loss of power may undo the last seconds"
    JOURNAL = "in the journal of offsets as flushDiskType says: SYNC_FLUSH survives a loss of power, ASYNC_FLUSH kill -9"
    FILE = "written to its file and synced: survives a loss of power"
    LOG = (
        "in the log as flushDiskType says: SYNC_FLUSH survives a loss of power, ASYNC_FLUSH kill -9"
    )
