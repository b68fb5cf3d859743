"""Every table that outlives a request says what bounds it: a new one without a row here fails.

A table is an attribute that is annotated or assigned as a dict, set, deque or the like, in the rooms that peers reach. Rows with
`bounds.` are filled by tests: tests/broker/test_bounds.py, tests/nameserver/test_bounds.py, tests/client/test_bounds.py.
"""

import ast
from pathlib import Path

import pytest
from tools import workspace

from roquette.base.bounds import Bound
from roquette.broker.floor.tables.bounds import BoundSettings, BrokerBounds
from roquette.nameserver.floor.config import NameServerBounds

ROOMS = ("base", "remoting", "access", "nameserver", "broker", "client", "store", "proxy")
FOLDERS = workspace.rooms(ROOMS)
KINDS = {"dict", "set", "OrderedDict", "deque", "defaultdict", "WeakKeyDictionary"}

BOUNDED: dict[str, str] = {
    # base, remoting
    "remoting/http1.py:_open": "MOST",
    "remoting/http1.py:_streams": "grpcMaxStreams of a connection; pages sent at one time: StreamedPage.most",
    "remoting/pem.py:files found": "the settings that name a file of certificates",
    "remoting/server.py:peers": "maxConnections",
    "remoting/request.py:_waiters": "65,535 requests in flight on a connection, then TooManyRequests",
    "remoting/client.py:_peers _connecting": "addresses of name servers and brokers; idle ones are closed",
    "remoting/account.py:_entries": "one a connection",
    "remoting/ha.py:_connections": "64 replicas of a door",
    "remoting/door.py:_doors": "maxConnections; 64 of a replication door",
    "remoting/running.py:_waiting": "one a connection, and the requests at work in tasks",
    "remoting/dispatcher.py:_rows": "the request codes that are served",
    "remoting/dispatcher.py:_pushing": "one a connection",
    "base/metric_families.py:dropped": "the families there are",
    "base/logs.py:_seen": "1,000 keys",
    "base/lifecycle.py:_tasks": "the beats, and requests at work: remoting/running.py, 256 of a connection, 10,000",
    "broker/floor/config.py:fixed": "the settings there are",
    "broker/service.py:fixed": "the settings there are",
    "nameserver/floor/core.py:fixed": "the settings there are",
    "nameserver/service.py:fixed": "the settings there are",
    # access
    "access/policies.py:_levels _with_places": "a user each",
    "access/policies.py:_exact _kinds _prefixes _lengths _singles": "the entries of a user's policies",
    "access/policies.py:_verdicts _known": "MAX_VERDICTS",
    "access/guard.py:refusals": "two kinds",
    "access/guard.py:_names": "codes of needs.NEEDS, with MOST_NAMES each",
    "access/users.py:_accounts": "MOST_USERS",
    "access/processor.py:_given": "MOST",
    # name server
    "nameserver/floor/core.py:_table": "bounds.kv_entries bounds.kv_characters",
    "nameserver/processors/routes.py:_encoded": "20,000 routes, 64 MiB",
    "nameserver/processors/routes.py:_brokers": "those that are registered",
    "nameserver/processors/routes.py:filter_server_table": "one answer",
    "nameserver/floor/route_table.py:_topics _told": "bounds.topics",
    "nameserver/floor/route_table.py:_brokers _clusters broker_addrs": "bounds.brokers",
    "nameserver/floor/route_table.py:_brokers _by_connection": "bounds.brokers",
    "nameserver/controller.py:_table": "MOST_KEYS, MOST_BYTES",
    "nameserver/floor/route_table.py:_found": "LEFT_BROKERS, the newest",
    "nameserver/floor/route_table.py:_watchers _topics _changed": "bounds.watches",
    "nameserver/floor/route_table.py:_filters": "bounds.brokers, with 100 filter servers each",
    "nameserver/floor/route_table.py:_mappings": "bounds.mappings",
    # broker: names that clients choose
    "broker/floor/tables/groups.py:_groups": "bounds.groups",
    "broker/floor/tables/groups.py:_forbidden": "bounds.forbidden",
    "broker/floor/tables/topics.py:_shown": "bounds.topics bounds.retry_topics",
    "broker/floor/tables/topics.py:_topics": "bounds.topics bounds.retry_topics",
    "broker/floor/tables/topics.py:attributes": "the attributes there are",
    "broker/floor/deletions.py:_ends": "bounds.deleted",
    "broker/floor/tables/offsets.py:_offsets _resets _dropped _own": "bounds.offsets",
    "broker/floor/tables/offsets.py:_pulls": "bounds.pulled",
    "broker/floor/tables/consumers.py:_groups _groups_of_peer channels": "bounds.consumers",
    "broker/floor/tables/consumers.py:subscriptions filters signatures": "what one heartbeat may name; a signature a member",
    "broker/floor/tables/consumers.py:_groups _groups_of_peer _clients": "bounds.producers",
    "broker/floor/tables/bounds.py:_locks": "bounds.locks",
    "broker/floor/tables/cold_reads.py:thresholds": "bounds.thresholds",
    "broker/floor/tables/cold_reads.py:readers": "bounds.groups, which go 60 s after they have read",
    "broker/floor/tables/groups.py:_modes": "bounds.modes",
    "broker/pop/order.py:_table _shifts": "bounds.orderly",
    "broker/pop/order.py:next_visible": "the messages of one pop",
    "broker/floor/stats.py:send_backs group_gets acks check_points deleted_unread": "bounds.counted",
    "broker/floor/stats.py:_samples _current": "601 seconds; milliseconds seen in a minute",
    "broker/floor/item_stats.py:_items": "20,000 counters; those idle for a day go",
    "broker/operation/consume_stats.py:_seen _bases": "topics and queues there are",
    "broker/timers/timer_metrics.py:_topics _idle": "bounds.timer_topics",
    "broker/floor/tables/filters.py:_tags _sql": "10,000 tag expressions, 1,000 selectors of 1 MiB together",
    # broker: requests that wait
    "broker/pulling/hold_table.py:_by_queue": "maxHeldPulls",
    "broker/pop/state.py:_waiting _watched _names": "maxPopPollingSize",
    "broker/clients/heartbeat.py:_beating": "heartbeats at work in tasks",
    "broker/pop/state.py:locked": "pops at work in tasks",
    "broker/pop/revive.py:_points _places _by_key _order": "popCkMaxBufferSize; the others wait in the log",
    # broker: its own, and other servers
    "broker/cluster/auto_creation.py:asked awaited": "name servers and brokers of one round; 256 rounds",
    "broker/cluster/auto_creation.py:_slow": "SLOW_BROKERS",
    "broker/cluster/feature.py:_known": "10,000 topics",
    "broker/cluster/registration.py:_servers pending": "configured name servers; topics there are",
    "broker/floor/config_files.py:_unknown failures": "the files",
    "broker/floor/disk_watch.py:_known": "queues that a group with an offset is behind the beginning of",
    "broker/operation/metrics.py:_ends": "TOPICS",
    "broker/operation/metrics.py:_ends _out": "metricsMaxSeries; queues of groups that pop",
    "broker/timers/delay_levels.py:_offsets _wake_ms": "the delay levels",
    "broker/transactions/half_messages.py:_pages": "the half queue from its oldest open message on",
    "broker/transactions/half_messages.py:_copies": "MAX_COPIES",
    "broker/replication/master.py:_feeds": "connections of the door: 64",
    "broker/replication/master.py:_came": "MOST_AHEAD hosts",
    "broker/replication/master.py:_ends _numbers": "connections of the door: 64",
    "broker/floor/set_aside.py:counts entries": "the tasks; the newest 1,000",
    "broker/replication/metadata_copy.py:_files _wanted _never _theirs": "the files and tables that are copied",
    "broker/replication/table_feed.py:_changes": "KEPT changes, KEPT_ROWS offsets",
    "broker/replication/table_feed.py:_waiting": "MOST_WAITING of each kind",
    "broker/timers/delivery.py:_recalled": "recalls of the slot that is delivered",
    "broker/sending/send.py:_own": "three properties",
    # client: caches, and what the application holds
    "client/app/router.py:_kept": "parameters of a function",
    "client/app/router.py:_topics _by_tag": "topics and tags that functions of an application name",
    "client/app/router.py:_members _checks": "functions of an application",
    "client/client_base.py:_environ": "the environment of the process",
    "client/pipeline.py:_filling": "topics that the application sends to, a moment each",
    "client/push_consumer.py:_limits": "the topics one consumer subscribes",
    "client/session.py:_routes": "core/bounds.py TOPICS, and the topics of its consumers",
    "client/session.py:_told _refused": "WATCHED; name servers",
    "client/session.py:_rounds": "topics in use, one each",
    "client/producer.py:_turns": "core/bounds.py TOPICS",
    "client/send_request.py:_common": "core/bounds.py TOPICS",
    "roquette_spark/workers/reader.py:_routes": "core/bounds.py TOPICS",
    "roquette_spark/workers/sender.py:_routes _turns": "core/bounds.py TOPICS",
    "client/core/route_cache.py:_until _isolated": "core/bounds.py BROKERS",
    "client/core/process_queue.py:_least": "core/bounds.py BROKERS",
    "roquette_spark/workers/reader.py:_avoided_until_ms": "core/bounds.py BROKERS",
    "roquette_spark/workers/reader.py:_replica_brokers": "brokers",
    "roquette_spark/workers/connection.py:_open": "servers of the cluster",
    "client/session.py:_turns _silent": "servers of one operation",
    "roquette_spark/workers/sender.py:_connections _last_heard_ms": "brokers",
    "client/core/route_cache.py:addresses": "brokers of a route",
    "client/session.py:_producer_groups _consumers": "producers and consumers the application has made; TOPICS of a proxy",
    "client/session.py:_fetching _greeted": "routes under way; connections",
    "client/pipeline.py:_unrouted _unconnected _waiting": "max_in_flight",
    "roquette_spark/workers/send_window.py:_ready _lanes": "sends under way",
    "roquette_spark/workers/sender.py:_flights": "sends under way",
    "roquette_spark/workers/connection.py:_answers _waiting": "requests under way",
    "client/core/process_queue.py:_unfinished": "prefetch",
    "client/core/process_queue.py:_topics": "topics of its subscriptions",
    "client/core/process_queue.py:minute hour": "seven samples",
    "client/concurrent.py:_waiting _at_work _leaving _giving_up": "queues of its subscriptions",
    "client/orderly.py:_waiting _tasks _leaving": "queues of its subscriptions",
    "client/offset_store.py:_saved _begun": "queues of its subscriptions",
    "client/reader.py:_positions _tasks _taken _generation _paused _done _saved": "queues of its subscriptions",
    "client/pop.py:_ready": "one batch of each broker",
    "client/pop.py:_tasks _attempts": "brokers of the topic",
    "client/pop.py:_waiting _singly": "jobs the application has; brokers",
    "client/push_consumer.py:queues _subscriptions": "queues of its subscriptions",
    "client/concurrent.py:_asked": "requests of operators under way, see Running",
    "client/handler.py:_waiting": "handlers at work",
    "client/requests.py:_waiting": "callers that wait",
    "client/requests.py:_met": "topics the application named",
    "client/transactions.py:_checks": "topics the application named",
    "client/transactions.py:open": "transactions the application has at work",
    "client/under_way.py:_sent": "addresses of brokers",
    "client/blocking_base.py:_checks": "topics the application named",
    "client/trace.py:_waiting": "WAITING",
    "client/push_consumer.py:_matchers": "topics of its subscriptions",
    "client/orderly.py:_asked _waiting": "queues of its subscriptions",
    "client/handler.py:_pending": "messages at work",
    "client/handler.py:properties": "one message",
    # proxy
    "proxy/serving.py:rpcs": "the rpcs there are",
    "proxy/serving.py:open_now": "maxConnections",
    "proxy/callers.py:_known": "MOST_CALLERS, then not remembered",
    "proxy/session.py:calls _reading _speaking": "grpcMaxStreams of a connection",
    "proxy/service.py:_waiting": "calls under way on the connection",
    "proxy/clients.py:_clients _places _producers _of_peer _shares clients": "MOST_BYTES, WEIGHT and settings each; MOST_NAMES each",
    "proxy/telemetry.py:_calls": "Telemetry streams: grpcMaxStreams of a connection",
    "proxy/telemetry.py:_waiting": "MOST",
    "proxy/service.py:rpcs": "the rpcs there are",
    "proxy/cluster.py:_producers": "client/core/route_cache.py TOPICS",
    "proxy/cluster.py:master_addresses": "client/core/route_cache.py BROKERS",
    "proxy/renewals.py:_entries _clients": "twice MOST, then messages are not renewed",
    "proxy/renewals.py:_changed": "MOST_CHANGED",
    "proxy/receiving.py:_of_client _of_group _parked": "receives under way: grpcMaxStreams of a connection",
    "proxy/receipts.py:_batches": "acks of one turn: the lanes' requests",
    "proxy/sending.py:_topics": "MOST_TOPICS, then from the start",
    "proxy/sending.py:user": "one message",
    "proxy/backend.py:_asked _known": "names that are looked up, WAITING callers; client/core/route_cache.py TOPICS",
    # store: queues that are written, and what is found at start
    "store/queues/consume_queues.py:queues topics new_directories": "queues on the disk: topics and their queues",
    "store/upkeep/upkeep.py:new_directories": "queues on the disk",
    "store/queues/consume_queue.py:checked_codes": "_MAX_CHECKED",
    "store/format/unit.py:_known": "64 tags of 128 characters of a topic that has queues",
    "store/queues/consume_queue.py:_row": "most files that are open: the settings say",
    "store/log/commit_log.py:_waiting": "sends that wait for a sync: answers of the lanes' requests",
    "store/audit/index_audit.py:_sums": "index files",
    "store/reput.py:gaps shifted misplaced _firsts _begun": "queues on the disk",
    "store/audit/timer_audit.py:_firsts _lasts _counts _current": "slots of the wheel that wait",
    "store/timer/timer_log.py:recalled": "recalls of the slot that is delivered",
    "store/timer_store.py:_current": "slots that are being delivered",
}


def kind_of(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def tables() -> set[str]:
    found = set()
    for top, folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            if "offline" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.AnnAssign):
                    target, is_table = node.target, kind_of(node.annotation) in KINDS
                elif isinstance(node, ast.Assign):
                    target, value = node.targets[0], node.value
                    literal = isinstance(value, (ast.Dict, ast.DictComp, ast.Set, ast.SetComp))
                    is_table = literal or (
                        isinstance(value, ast.Call) and kind_of(value.func) in KINDS
                    )
                else:
                    continue
                if is_table and isinstance(target, ast.Attribute):
                    found.add(f"{path.relative_to(top)}:{target.attr}")
    return found


def rows() -> dict[str, str]:
    found = {}
    for row, bound in BOUNDED.items():
        path, _, attributes = row.partition(":")
        for attribute in attributes.split():
            found[f"{path}:{attribute}"] = bound
    return found


@pytest.mark.promise("Bounds", "every table that outlives a request names its bound")
def test_every_table_says_what_bounds_it() -> None:
    missing = tables() - rows().keys()
    assert not missing, (
        f"what bounds these tables? {sorted(missing)}: give them a Bound (packages/roquette/src/roquette/broker/floor/tables/bounds.py, "
        "nameserver/floor/config.py, client/core/route_cache.py) if their keys come from peers, and a row here"
    )
    without = rows().keys() - tables()
    assert not without, f"rows without a table: {sorted(without)}"


def test_the_bounds_that_are_named_exist_and_all_are_named() -> None:
    named = {
        (path.split("/")[0], word.removeprefix("bounds.").rstrip(","))
        for path, text in rows().items()
        for word in text.split()
        if word.startswith("bounds.")
    }
    broker = {n for n, b in vars(BrokerBounds(BoundSettings)).items() if isinstance(b, Bound)}
    existing = {("broker", name) for name in broker}
    existing |= {("nameserver", name) for name in vars(NameServerBounds())}
    assert named == existing


def test_a_table_without_a_row_is_found(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "x.py").write_text(
        "class X:\n    def __init__(self) -> None:\n        self.a: dict[str, int] = {}\n"
        "        self.b = set()\n        self.c = [1]\n        self.d: deque[int] = deque()\n"
    )
    monkeypatch.setattr(f"{__name__}.FOLDERS", [(tmp_path, tmp_path)])
    assert tables() == {f"broker/x.py:{name}" for name in "abd"}
