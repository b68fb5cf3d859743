"""The rows of the table: name, load, and what it is allowed to cost beside Apache's broker."""

from dataclasses import dataclass, field

FILL_TOPIC = "BenchDrain"
SEND_LIMIT = 0.5  # of Apache's CPU per message (issue: acceptance 3)
DRAIN_LIMIT = 0.6


@dataclass(frozen=True)
class Row:
    """One load. `settings` go to the load as they are."""

    key: str
    title: str
    client: str  # "raw" or "java"
    verb: str
    limit: float
    settings: dict[str, int] = field(default_factory=dict)
    sync_flush: bool = False

    @property
    def drains(self) -> bool:
        """Whether it reads the topic that was filled before, instead of sending."""
        return self.verb in ("pull", "push")


def _raw(connections: int, inflight: int, body: int) -> Row:
    size = "1 KiB" if body == 1024 else f"{body} B"
    return Row(
        f"raw-{connections}x{inflight}-{body}",
        f"raw frames, {connections} × {inflight} in flight, {size}",
        "raw",
        "send",
        SEND_LIMIT,
        {"connections": connections, "inflight": inflight, "body": body},
    )


def _java(threads: int, body: int, *, sync_flush: bool = False) -> Row:
    size = "1 KiB" if body == 1024 else f"{body} B"
    plural = "thread" if threads == 1 else "threads"
    return Row(
        f"{'sync-' if sync_flush else ''}java-{threads}-{body}",
        f"{'SYNC_FLUSH, ' if sync_flush else ''}Java client, {threads} {plural}, {size}",
        "java",
        "send",
        SEND_LIMIT,
        {"threads": threads, "body": body},
        sync_flush,
    )


ROWS = (
    _raw(1, 1, 128),
    _raw(32, 1, 128),
    _raw(64, 1, 1024),
    _raw(4, 32, 128),
    _raw(8, 64, 1024),
    Row(
        "raw-batch",
        "raw frames, batches of 32 × 1 KiB",
        "raw",
        "send",
        SEND_LIMIT,
        {"connections": 1, "inflight": 1, "body": 1024, "batch": 32},
    ),
    *(_java(threads, body) for body in (128, 1024) for threads in (1, 32, 64)),
    Row(
        "java-batch",
        "Java client, batches of 32 × 1 KiB, 4 threads",
        "java",
        "send",
        SEND_LIMIT,
        {"threads": 4, "body": 1024, "batch": 32},
    ),
    Row(
        "java-async",
        "Java client, asynchronous, 256 in flight, 128 B",
        "java",
        "async",
        SEND_LIMIT,
        {"inflight": 256, "body": 128},
    ),
    Row(
        "raw-pull",
        "raw pull drain, 8 queues over 4 connections",
        "raw",
        "pull",
        DRAIN_LIMIT,
        {"connections": 4},
    ),
    Row(
        "java-pull",
        "Java client, pull drain, 4 threads",
        "java",
        "pull",
        DRAIN_LIMIT,
        {"threads": 4},
    ),
    Row(
        "java-push",
        "Java client, push drain, 20 threads",
        "java",
        "push",
        DRAIN_LIMIT,
        {"threads": 20, "batch": 1},
    ),
    Row(
        "java-push-32",
        "Java client, push drain, 20 threads, listener batch 32",
        "java",
        "push",
        DRAIN_LIMIT,
        {"threads": 20, "batch": 32},
    ),
    _java(1, 128, sync_flush=True),
    _java(32, 128, sync_flush=True),
)


def chosen(words: str) -> list[Row]:
    """The rows whose key contains one of the words; all without words."""
    wanted = [word for word in words.split(",") if word]
    rows = [row for row in ROWS if not wanted or any(word in row.key for word in wanted)]
    if not rows:
        raise SystemExit(f"no such row; there are: {', '.join(row.key for row in ROWS)}")
    return rows
