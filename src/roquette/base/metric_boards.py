"""A board and alerts made from the table of metrics, so that neither names one that no server shows. Pure."""

from typing import Any, Final, NamedTuple

from roquette.base import metric_families as m
from roquette.base.exposition import Family

_PANELS: Final[tuple[tuple[str, Family, str, str], ...]] = (
    ("Messages put a second", m.BROKER_TPS, "sum by (broker) ({})", "{{broker}}"),
    ("Messages got a second", m.BROKER_QPS, "sum by (broker) ({})", "{{broker}}"),
    ("Topics with most messages", m.MESSAGES_IN, "topk(10, sum by (topic) (rate({}[5m])))", "{{topic}}"),
    ("Bytes put a second", m.BYTES_IN, "sum by (node_id) (rate({}[5m]))", "{{node_id}}"),
    ("Lag of groups", m.LAG, "topk(10, sum by (consumer_group, topic) ({}))", "{{consumer_group}} {{topic}}"),
    ("Age of what groups take, ms", m.LAG_LATENCY, "topk(10, max by (consumer_group, topic) ({}))", "{{consumer_group}} {{topic}}"),
    ("Dead letters", m.DLQ_OFFSET, "sum by (group) (increase({}[1h]))", "{{group}}"),
    ("Messages given back", m.SEND_BACKS, "sum by (consumer_group) (rate({}[5m]))", "{{consumer_group}}"),
    ("Members of groups", m.CONSUMERS, "sum by (consumer_group) ({})", "{{consumer_group}}"),
    ("Subscription conflicts", m.CONFLICTS, "sum by (node_id) ({})", "{{node_id}}"),
    ("Used share of disks", m.DISK_USED, "max by (node_id, disk) ({})", "{{node_id}} {{disk}}"),
    ("Commit log, bytes", m.STORAGE_SIZE, "sum by (node_id) ({})", "{{node_id}}"),
    ("Not synced, bytes", m.FLUSH_BEHIND, "max by (node_id) ({})", "{{node_id}}"),
    ("Seconds of a sync", m.FSYNC, "rate({}_sum[5m]) / rate({}_count[5m])", "{{node_id}}"),
    ("Waits for the event loop, s", m.LOOP_LAG, "max by (instance) ({})", "{{instance}}"),
    ("Requests that wait", m.WATERMARK, "max by (node_id, processor) ({}) > 0", "{{node_id}} {{processor}}"),
    ("Replicas in step", m.REPLICAS_IN_STEP, "max by (node_id) ({})", "{{node_id}}"),
    ("Errors of tasks", m.TASK_FAILURES, "sum by (instance, task) (increase({}[10m])) > 0", "{{instance}} {{task}}"),
)  # fmt: skip


class Alert(NamedTuple):
    """One rule. `query` has {} for the metric's name."""

    name: str
    family: Family
    query: str
    lasts: str
    severity: str
    summary: str


ALERTS: Final = (
    Alert("RocketMQConsumerLagOld", m.LAG_LATENCY, "{} > 300000", "5m", "warning", "Group {{ $labels.consumer_group }} takes messages of {{ $labels.topic }} that are older than 5 minutes"),
    Alert("RocketMQConsumerLagGrows", m.LAG, "deriv({}[15m]) > 0 and {} > 10000", "15m", "warning", "Group {{ $labels.consumer_group }} falls behind on {{ $labels.topic }}"),
    Alert("RocketMQDeadLetters", m.DLQ_OFFSET, "increase({}[15m]) > 0", "0m", "warning", "Messages of group {{ $labels.group }} became dead letters"),
    Alert("RocketMQSubscriptionConflict", m.CONFLICTS, "{} > 0", "2m", "critical", "Members of a group subscribe differently at {{ $labels.node_id }}: messages reach nobody; the broker's log names them"),
    Alert("RocketMQDuplicateClientIds", m.DUPLICATES, "increase({}[10m]) > 0", "0m", "warning", "Two clients have one id at {{ $labels.node_id }}; the broker's log names them"),
    Alert("RocketMQRefusesMessages", m.REFUSING, "{} > 0", "0m", "critical", "{{ $labels.node_id }} refuses messages: its disk is full"),
    Alert("RocketMQDiskFills", m.DISK_USED, "predict_linear({}[6h], 86400) > 0.85", "30m", "warning", "The {{ $labels.disk }} disk of {{ $labels.node_id }} is full within a day"),
    Alert("RocketMQSyncSlow", m.FSYNC, "rate({}_sum[5m]) / rate({}_count[5m]) > 0.1", "10m", "warning", "A sync at {{ $labels.node_id }} takes more than 100 ms"),
    Alert("RocketMQEventLoopWaits", m.LOOP_LAG, "{} > 0.5", "2m", "warning", "The event loop of {{ $labels.instance }} is held for more than half a second"),
    Alert("RocketMQTaskFails", m.TASK_ROW, "{} >= 3", "1m", "critical", "Task {{ $labels.task }} of {{ $labels.instance }} fails again and again"),
    Alert("RocketMQReplicaBehind", m.REPLICA_LAG, "{} > 67108864", "5m", "warning", "A replica of {{ $labels.node_id }} lacks more than 64 MiB"),
    Alert("RocketMQGroupTrouble", m.GROUP_TROUBLE, "{} > 0", "1m", "critical", "{{ $labels.node_id }} has a trouble with its group ({{ $labels.kind }}): roquette doctor says what to do"),
    Alert("RocketMQMetricsLeftOut", m.SERIES_DROPPED, '{}{metric=""} > 0', "10m", "info", "{{ $labels.node_id }} leaves series out of its metrics (metricsMaxSeries, metricsMaxSamples)"),
)  # fmt: skip


def prometheus_rules() -> dict[str, Any]:
    """A rule file: YAML takes its JSON as it is."""
    rules = [
        {
            "alert": each.name,
            "expr": _query(each.family, each.query),
            "for": each.lasts,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "description": each.family.meaning},
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": "rocketmq", "rules": rules}]}


def grafana_board() -> dict[str, Any]:
    """A board to import; Grafana asks for its data source."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "description": family.meaning,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "targets": [{"refId": "A", "expr": _query(family, query), "legendFormat": legend}],
        }
        for number, (title, family, query, legend) in enumerate(_PANELS)
    ]
    asked = {
        "name": "DS_PROMETHEUS",
        "label": "Prometheus",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
    return {
        "__inputs": [asked],
        "title": "RocketMQ",
        "uid": "roquette",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "panels": panels,
    }


def _query(family: Family, query: str) -> str:
    return query.replace("{}", family.name)
