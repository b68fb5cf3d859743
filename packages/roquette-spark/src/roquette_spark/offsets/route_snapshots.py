"""Routes of every topic from every name server at one moment, as plain dicts for a file of JSON lines."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from roquette.errors import ClientError
from roquette.message.names import is_system_topic
from roquette_spark.workers.inspector import ClusterInspector, RouteAnswer


def take_snapshot(
    namesrv_addr: str, topics: Iterable[str], now_ms: int, *, timeout_ms: int = 5_000
) -> list[dict[str, Any]]:
    """One line for each name server and topic; without topics: all but the system's own that any server knows.

    A server that does not answer has lines that say so.

    Raises:
        ClientError: no name server answers, or one answers nonsense.
    """
    inspector = ClusterInspector(namesrv_addr, timeout_ms=timeout_ms)
    wanted = sorted(set(topics)) or [t for t in inspector.topics() if not is_system_topic(t)]
    return [as_line(answer, now_ms) for answer in inspector.routes(wanted)]


def as_line(answer: RouteAnswer, now_ms: int) -> dict[str, Any]:
    """A route in words of its own: queue counts and permission by broker, addresses by broker and id."""
    line: dict[str, Any] = {
        "at_ms": now_ms,
        "name_server": answer.name_server,
        "topic": answer.topic,
        "known": answer.route is not None,
        "error": answer.error,
        "queues": {},
        "addresses": {},
    }
    if answer.route is not None:
        line["queues"] = {
            data.broker_name: [data.read_queue_nums, data.write_queue_nums, data.perm]
            for data in sorted(answer.route.queue_datas, key=lambda data: data.broker_name)
        }
        line["addresses"] = {
            data.broker_name: {str(i): data.broker_addrs[i] for i in sorted(data.broker_addrs)}
            for data in sorted(answer.route.broker_datas, key=lambda data: data.broker_name)
        }
    return line


def user_topics(namesrv_addr: str, *, timeout_ms: int = 5_000) -> list[str]:
    """Topics the name servers know that are not the system's, a cluster's or a broker's own.

    Raises:
        ClientError: no name server answers.
    """
    return _listed(namesrv_addr, timeout_ms, lambda topic: not is_system_topic(topic))


def all_topics(namesrv_addr: str, *, timeout_ms: int = 5_000) -> list[str]:
    """Every topic the name servers know. Raises ClientError when none answers."""
    return _listed(namesrv_addr, timeout_ms, lambda topic: True)


def _listed(namesrv_addr: str, timeout_ms: int, wanted: Callable[[str], bool]) -> list[str]:
    inspector = ClusterInspector(namesrv_addr, timeout_ms=timeout_ms)
    own: set[str] = set()
    with contextlib.suppress(ClientError):
        for broker in inspector.brokers():
            own |= {broker.broker_name, broker.cluster, f"{broker.cluster}_REPLY_TOPIC"}
    return [topic for topic in inspector.topics() if topic not in own and wanted(topic)]
