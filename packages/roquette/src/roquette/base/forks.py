"""Count of forks that this process has come through: sockets and threads do not come along."""

import os


class _Forks:
    def __init__(self) -> None:
        self.count = 0
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.count += 1


_forks = _Forks()


def fork_count() -> int:
    """The same number as long as we are in one process; another one in a child."""
    return _forks.count
