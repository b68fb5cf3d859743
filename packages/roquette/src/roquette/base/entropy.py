"""The only source of random numbers and of process identity; seeded in the simulation."""

import base64
import os
import random
import secrets


class Entropy:
    """Random numbers and the identity of this process.

    Args:
        seed: None draws from the operating system; a number makes every draw repeatable.
        process_id: the identity to show; default is the real one.
    """

    def __init__(self, seed: int | None = None, process_id: int | None = None) -> None:
        self._seeded = seed is not None
        self.random = random.Random(seed)
        self.process_id = os.getpid() if process_id is None else process_id

    def below(self, bound: int) -> int:
        """A number in 0 .. bound-1."""
        return self.random.randrange(bound)

    def bytes(self, count: int) -> bytes:
        """`count` random bytes (not for secrets)."""
        return self.random.randbytes(count)

    def secret(self, count: int) -> str:
        """`count` bytes that nobody can guess, as hexadecimal text; seeded ones are repeatable."""
        return self.random.randbytes(count).hex() if self._seeded else secrets.token_hex(count)

    def token(self, count: int = 8) -> str:
        """`count` random bytes as hexadecimal text."""
        return self.random.randbytes(count).hex()


def secret_text(count: int = 24) -> str:
    """A new secret of `count` random bytes of the system, as text of letters, digits, `-` and `_`."""
    return base64.urlsafe_b64encode(os.urandom(count)).decode().rstrip("=")


# Count of forks that this process has come through: sockets and threads do not come along.


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
