"""Run a command and be the parent of what its processes leave behind, so that who waits for this one learns the CPU time of all.

usage: python tools/adopt.py COMMAND [WORD ...]

Spark's driver, for one, does not wait for its JVM. On systems other than Linux, orphans go to the system as they always do.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

LAST_S = 5.0  # for those that end because the command has
PR_SET_CHILD_SUBREAPER = 36  # of <linux/prctl.h>


def main() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C is for the command, which is in the same group; its end is ours. (A signal that is ignored would be for it, too.)
    signal.signal(signal.SIGINT, lambda *_: None)
    command = subprocess.Popen(sys.argv[1:])
    while (found := os.wait())[0] != command.pid:
        pass
    ends = time.monotonic() + LAST_S
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < ends:
            time.sleep(0.05)
    sys.exit(os.waitstatus_to_exitcode(found[1]) & 0xFF)


if __name__ == "__main__":
    main()
