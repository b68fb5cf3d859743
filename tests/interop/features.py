"""What was seen of which client: the marker `feature` and the record that a run leaves.

    @pytest.mark.feature("batch", client="Go 2.1.2")

says that the test shows batches sent by the Go client. Without `client` it is the Java client in the version
the parameter `java` or `version` gives, or the v5 client that the parameter `client` names. A run writes the outcome of each marked test into `.cache/interop/features.json`,
beside those of tests it did not run; tools/client_table.py makes the table of docs/reference/clients.md from it.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.interop.peers import ROOT, alone

RECORD = ROOT / ".cache" / "interop" / "features.json"

JAVA = ("Java 4.9.8", "Java 5.5.0")
# Columns of the table.
CLIENTS = (*JAVA, "Go 2.1.2", "Node 3.12.0")
# Rows of the table, with the words that stand there.
FEATURES = {
    "send": "send and wait",
    "send-async": "send with a callback",
    "send-oneway": "send one way",
    "send-to-queue": "send to a chosen queue, by selector or sharding key",
    "batch": "batches",
    "properties": "tags, keys and properties in any language",
    "compressed": "compressed bodies",
    "auto-create": "topics made by the first send, or refused",
    "refusals": "the broker's refusals reach the caller",
    "delay": "delay levels",
    "timer": "delivery at any time",
    "recall": "recall of a delayed message",
    "transactions": "transactions and check-backs",
    "request-reply": "request and reply",
    "trace": "message trace",
    "namespaces": "namespaces",
    "push": "push consumer",
    "pull": "pull consumer, by subscription or by queue",
    "pop": "POP consumer",
    "tags": "filter by tags",
    "sql92": "filter by SQL92",
    "rebalance": "queues shared in a group, taken over when a member leaves",
    "mixed-group": "one group with members of other clients",
    "order": "order within a queue, locks",
    "broadcasting": "broadcasting",
    "retry": "retry of failed messages",
    "dead-letter": "dead letters",
    "offsets": "offsets kept, resumed, sought and reset",
    "lag": "lag and consume statistics",
    "query": "query by key, id and time",
    "callbacks": "requests of the broker to the client (running info, consume directly)",
    "topics": "topic types, attributes and permissions",
    "admin": "administration",
}
# Cells that stay empty because the client has no such thing.
NOT_OFFERED = {
    "Java 4.9.8": ("recall", "pop"),
    "Go 2.1.2": ("timer", "recall", "pop", "query", "lag"),
    "Node 3.12.0": (
        *("send-async", "send-oneway", "batch", "timer", "recall", "transactions"),
        *(
            "request-reply",
            "auto-create",
            "trace",
            "pull",
            "pop",
            "order",
            "lag",
            "query",
            "callbacks",
            "topics",
            "admin",
        ),
    ),
}
# The same for clients of the v5 protocol.
V5_CLIENTS = (
    "Java v5 5.2.0",
    "Go v5 5.1.2",
    "Python v5 5.1.2",
    "Node v5 1.0.8",
    "Rust v5 5.0.0",
)
V5_FEATURES = {
    "send": "send and wait",
    "batch": "batches",
    "properties": "tags, keys and properties in any language",
    "refusals": "refusals reach the caller",
    "timer": "delivery at any time",
    "recall": "recall of a delayed message",
    "priority": "priorities",
    "transactions": "transactions and check-backs",
    "simple": "simple consumer: receive, acknowledge",
    "invisible": "invisible times changed",
    "push": "push consumer",
    "tags": "filter by tags",
    "sql92": "filter by SQL92",
    "order": "messages of a group in order",
    "retry": "retry of failed messages",
    "dead-letter": "dead letters",
    "mixed-group": "one group with members of the remoting protocol",
    "tls": "TLS at the same port",
    "shutdown": "orderly end",
}
_NO_PUSH = ("recall", "priority", "push", "retry", "dead-letter")
V5_NOT_OFFERED = {
    "Java v5 5.2.0": ("batch",),
    "Go v5 5.1.2": ("batch", *_NO_PUSH),
    "Python v5 5.1.2": ("batch",),
    "Node v5 1.0.8": ("batch",),
    "Rust v5 5.0.0": ("invisible", "tls", *_NO_PUSH),
}
# Fixtures whose parameter says whose servers a test ran on.
SERVERS = ("cluster", "pair", "servers", "recalling", "pop_cluster")


def shown(item: pytest.Item) -> list[tuple[str, str]]:
    """Pairs of client and feature that a test shows when it passes."""
    pairs = []
    for mark in item.iter_markers("feature"):
        clients = mark.kwargs.get("client", JAVA)
        chosen: Iterable[str] = (clients,) if isinstance(clients, str) else clients
        version = parameters(item).get("java", parameters(item).get("version"))
        if "client" not in mark.kwargs and version is not None:
            chosen = [f"Java {version}"]
        if "client" in parameters(item):  # the tests of v5 clients
            chosen = [str(parameters(item)["client"])]
        pairs += [(client, feature) for client in chosen for feature in mark.args]
    return pairs


def parameters(item: pytest.Item) -> dict[str, object]:
    """The parameters a test was called with."""
    return item.callspec.params if hasattr(item, "callspec") else {}


class Recorder:
    """Keeps the outcomes of one run and adds them to the record at its end."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, object]] = {}

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Take the outcome of a marked test; a failure before or after the call counts as one."""
        pairs = shown(item)
        if not pairs or (report.when != "call" and report.outcome == "passed"):
            return
        if report.when == "teardown" and item.nodeid in self.seen:
            self.seen[item.nodeid]["outcome"] = report.outcome
            return
        flavours = [parameters(item)[name] for name in SERVERS if name in parameters(item)]
        server = flavours[0] if flavours else "roquette"
        self.seen[item.nodeid] = {"shows": pairs, "server": server, "outcome": report.outcome}

    def write(self, path: Path = RECORD) -> None:
        """Add what was seen to what earlier runs saw."""
        if not self.seen:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone("features"):  # each worker of a run writes its own
            known = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**known, **self.seen}, indent=1, sort_keys=True) + "\n")
