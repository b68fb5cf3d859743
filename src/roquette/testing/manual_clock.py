"""A clock that moves only when the test says so."""


class ManualClock:
    """Epoch milliseconds under the test's control (`roquette.base.clock.Clock`)."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def advance(self, milliseconds: int) -> int:
        """Move forward and return the new time; negative jumps back, as a wall clock may."""
        self._now_ms += milliseconds
        return self._now_ms
