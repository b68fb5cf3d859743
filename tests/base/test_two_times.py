"""Who reads the wall clock, function by function, and why: a duration among them would be a fault.

Functions that get times as arguments say in their documentation which of the two they mean.
"""

import ast

import pytest
from tools import workspace

ROOMS = ("base", "broker", "client", "nameserver", "remoting", "store", "admin", "cli", "apps")

VERSIONS = "the versions of tables carry the time of their last change, as Apache's do"
STORED = "what is stored carries it"
SHOWN = "people and tools are shown it"
PROMISED = "timer messages are promised for a wall time"
READERS: dict[str, tuple[str, str]] = {
    "admin/explain.py": ("how long a delayed message still waits", "explain_message"),
    "admin/seek.py": ("places that are times", "seek_group"),
    "admin/async_admin.py": ("a place is a time of the application's, `@-1h`", "_place"),
    "admin/doctor/examination.py": (
        "the wall clocks of brokers are compared with ours, and so is what they stored",
        "_delays _running_state examine where_they_are who_is_there",
    ),
    "apps/local_group.py": ("when a process was started, for people", "_start"),
    "apps/local_backend.py": (VERSIONS, "_make group"),
    "broker/cluster/auto_creation.py": (VERSIONS, "_ask"),
    "broker/floor/table_files.py": (VERSIONS, "_settings_changed"),
    "broker/floor/disk_watch.py": (
        "the hour of deletion (deleteWhen); ages count from `retention.SteadyTime`",
        "_clean_once look",
    ),
    "broker/floor/tables/cold_reads.py": (SHOWN, "count"),
    "broker/replication/follower.py": (SHOWN, "status"),
    "broker/pop/hand_out.py": (
        STORED,
        "_hand_out _log_check_point _log_order _queue _retries _work drop",
    ),
    "broker/pop/checks.py": (VERSIONS, "topic_and_group"),
    "broker/operation/settings.py": (SHOWN, "show_runtime_info"),
    "broker/pop/assignment.py": (VERSIONS, "set_request_mode"),
    "broker/clients/client_calls.py": (VERSIONS, "consume_directly"),
    "broker/operation/consume_stats.py": (SHOWN, "_sample time_span"),
    "broker/operation/metrics.py": (SHOWN, "_collect_popped _of_broker _scrape pieces"),
    "nameserver/metrics.py": (SHOWN, "_pieces"),
    "broker/operation/group_admin.py": (
        VERSIONS,
        "all_producers create_group create_groups delete_group forbidden",
    ),
    "broker/clients/heartbeat.py": (VERSIONS, "_register_consumer"),
    "broker/operation/offset_admin.py": (VERSIONS, "_clone _reset update_consumer_offset"),
    "broker/pop/acknowledge.py": (
        STORED,
        "_ack_entry _ack_orderly _change_orderly ack_message change_invisible_time",
    ),
    "broker/pulling/pull.py": (VERSIONS, "pull_message"),
    "broker/timers/feature.py": (
        PROMISED,
        "__init__ _do _flush _pause_s _save_metrics _turn metrics_body recall recover save_now",
    ),
    "broker/sending/feature.py": (STORED, "_keep _push _push_fields _put put send_back"),
    "broker/sending/send.py": (
        STORED,
        "_append_batch _create_topic _dead_letter _send_plain _send_special admit send_message",
    ),
    "broker/operation/topic_admin.py": (VERSIONS, "_put create_topic delete_topic one_topic"),
    "broker/transactions/feature.py": (STORED, "_run _save end_transaction load resume_check"),
    "broker/service.py": (STORED, "__init__ _close _open_store"),
    "broker/floor/core.py": (STORED, "build_core"),
    "broker/floor/parts.py": (STORED, "__init__"),
    "broker/cluster/registration.py": (VERSIONS, "_begin_epoch _take_order_topics"),
    "broker/pop/feature.py": (STORED, "_settle"),
    "broker/pulling/feature.py": (VERSIONS, "_disable_slow_readers"),
    "broker/floor/feature.py": (STORED, "run_steps"),
    "broker/floor/clock.py": ("it watches the wall clock", "__init__ now_ms"),
    "broker/replication/metadata_copy.py": (VERSIONS, "_copy_topics _drop_topic"),
    "apps/dev.py": ("certificates say from when to when they hold", "secured"),
    "cli/backup.py": ("a backup says when it was made", "backup"),
    "cli/bench.py": ("places that are times", "sub"),
    "admin/bench.py": ("how old a message is when it arrives", "receive received"),
    "cli/messages.py": ("places that are times", "_place list_letters"),
    "admin/newest.py": ("places that are times", "list_messages"),
    "admin/stored.py": ("places that are times", "moment_of resend_letters"),
    "cli/tls.py": ("certificates say from when to when they hold", "make_files"),
    "remoting/certificates.py": ("certificates say from when to when they hold", "own_pair"),
    "roquette_spark/workers/sender.py": (STORED, "_header"),
    "client/push_consumer.py": (SHOWN, "__init__ _pull"),
    "client/send_request.py": (STORED, "header_for new_id"),
    "client/trace.py": (SHOWN, "handled on_receive on_send recalled transaction_ended"),
    "client/requests.py": ("a reply says when it was made", "_reply"),
    "client/arguments.py": (SHOWN, "deliver_time"),
    "client/reader.py": ("the version of a subscription", "_read subscribe"),
    "remoting/dispatcher.py": ("it hands both times to processors", "_turn rerun"),
}


def _readers() -> dict[str, dict[str, int]]:
    """File -> function -> how often it reads the wall clock."""
    found: dict[str, dict[str, int]] = {}
    for top, folder in workspace.rooms(ROOMS):
        for path in sorted(folder.rglob("*.py")):
            tree = ast.parse(path.read_text())
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    count = sum(map(_reads_wall, ast.walk(function)))
                    if count:
                        name = str(path.relative_to(top))
                        found.setdefault(name, {})[function.name] = count
    return found


def _reads_wall(node: ast.AST) -> bool:
    """`clock.now_ms()`, or a request's `ctx.now_ms`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "now_ms" and not node.args
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "now_ms"
        and isinstance(node.value, ast.Name)
        and node.value.id == "ctx"
    )


@pytest.mark.promise("Time", "wall time is read only where wall time is meant")
def test_wall_time_is_read_only_where_wall_time_is_meant() -> None:
    found = {name: sorted(functions) for name, functions in _readers().items()}
    wanted = {name: functions.split() for name, (_, functions) in READERS.items()}

    assert found == wanted, "a new reader of the wall clock: take `steady_ms`, or say here why not"
