"""DataVersion: how brokers and name servers see that a table changed."""

import msgspec

from roquette.wire.numbers import Int64


class DataVersion(msgspec.Struct, rename="camel"):
    """Equal only when all three are. `timestamp` is ms since the epoch."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change (DataVersion.nextVersion)."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms
        )
