"""DataVersion: how brokers and name servers see that a table changed."""

import msgspec


class DataVersion(msgspec.Struct, rename="camel"):
    """Equal only when all three are. `timestamp` is ms since the epoch."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change (DataVersion.nextVersion)."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms
        )
