"""A clock that moves only when the test says so."""


class ManualClock:
    """Both times of `roquette.base.clock.Clock` under the test's control."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._steady_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def steady_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._steady_ms

    def lease_ms(self) -> int:
        """Steady time, sleep included."""
        return self._steady_ms

    def advance(self, milliseconds: int) -> int:
        """Let time pass; returns the new wall time."""
        assert milliseconds >= 0, "time does not go back: use `jump`"
        self._steady_ms += milliseconds
        return self.jump(milliseconds)

    def jump(self, milliseconds: int) -> int:
        """Somebody sets the wall clock, forward or back; returns the new wall time."""
        self._now_ms += milliseconds
        return self._now_ms
