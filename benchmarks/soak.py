"""`python -m benchmarks.soak`: a million messages in and out through one broker; does its memory grow?

Sends and drains in steps of 100,000 messages of 128 bytes and looks at the broker's anonymous memory after each.
Ends with 1 when a request was refused, a message is missing, or memory grew by more than 20 MB between the
first 100,000 and the last.
"""

import argparse
import json
import sys
from dataclasses import dataclass

from benchmarks import loads, servers

TOPIC = "BenchSoak"
STEP = 100_000
LIMIT_MB = 20.0


@dataclass
class Soaked:
    """What a soak found; memory in MB after each step."""

    messages: int
    drained: int
    errors: int
    first_error: str
    anonymous_mb: list[float]

    @property
    def growth_mb(self) -> float:
        """From the first step to the last."""
        return self.anonymous_mb[-1] - self.anonymous_mb[0]

    @property
    def sound(self) -> bool:
        """Nothing refused, nothing missing, no growth beyond the limit."""
        return not self.errors and self.drained == self.messages and self.growth_mb <= LIMIT_MB


def soak(pair: servers.Pair, messages: int, step: int = STEP) -> Soaked:
    """Run the steps against a running pair of servers."""
    servers.create_topic(pair, TOPIC)
    found = Soaked(0, 0, 0, "", [])
    while found.messages < messages:
        start = found.messages // servers.QUEUES
        wide = {"connections": 8, "inflight": 16, "body": 128}
        sent = loads.raw(pair, "send", TOPIC, count=step, seconds=120, **wide)
        read = loads.raw(pair, "pull", TOPIC, connections=4, **{"from": start})
        found.messages += sent.messages
        found.drained += read.messages
        found.errors += sent.errors + read.errors
        found.first_error = found.first_error or sent.first_error or read.first_error
        found.anonymous_mb.append(servers.anonymous_kb(pair.broker_pid) / 1024)
    return found


def main() -> int:
    """Start servers, soak, tell."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--server", default="compiled", choices=servers.KINDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.server == "compiled":
        servers.build_compiled()
    pair = servers.start(arguments.server)
    try:
        found = soak(pair, arguments.messages)
    finally:
        pair.stop()
    if arguments.json:
        print(json.dumps({**found.__dict__, "growth_mb": found.growth_mb, "sound": found.sound}))
    else:
        print(
            f"{found.messages:,} messages in, {found.drained:,} out, {found.errors} errors {found.first_error}"
        )
        print("anonymous memory, MB:", ", ".join(f"{mb:.1f}" for mb in found.anonymous_mb))
        print(
            f"growth {found.growth_mb:.1f} MB, limit {LIMIT_MB:g}: {'ok' if found.sound else 'FAILED'}"
        )
    return 0 if found.sound else 1


if __name__ == "__main__":
    sys.exit(main())
