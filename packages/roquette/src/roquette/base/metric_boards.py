"""A board and alerts made from the table of metrics (`roquette generate`), so that neither names one that no server shows. Pure."""

import re
from typing import Any, Final, NamedTuple

from roquette.base import metric_families as m
from roquette.base.metric_families import Family

_UP: Final = Family("up", "gauge", "1 while Prometheus reaches a server; Prometheus makes it.")

# What the board's variables leave of a metric: by the labels it has.
_ALL: Final = ""
_BROKER: Final = '{cluster=~"$cluster",broker=~"$broker"}'
_NODE: Final = '{cluster=~"$cluster",node_id=~"($broker)-[0-9]+"}'
_TOPIC: Final = f'{_NODE[:-1]},topic=~"$topic"}}'
_GROUP: Final = f'{_TOPIC[:-1]},consumer_group=~"$group"}}'
_OF_GROUP: Final = f'{_NODE[:-1]},consumer_group=~"$group"}}'
_DEAD: Final = f'{_BROKER[:-1]},group=~"$group"}}'

_VARIABLES: Final = (
    ("cluster", m.TOPIC_NUMBER, "", "cluster"),
    ("broker", m.BROKER_TPS, '{cluster=~"$cluster"}', "broker"),
    ("topic", m.PRODUCER_OFFSET, _BROKER, "topic"),
    ("group", m.CONSUMER_OFFSET, _BROKER, "group"),
)
_PANELS: Final[tuple[tuple[str, Family, str, str, str], ...]] = (
    ("Servers that are reached and ready", m.SERVER_READY, "sum by (node_type) ({})", _ALL, "{{node_type}}"),
    ("Brokers that name servers know", m.BROKERS, "max by (instance) ({})", _ALL, "{{instance}}"),
    ("Messages put a second", m.BROKER_TPS, "sum by (broker) ({})", _BROKER, "{{broker}}"),
    ("Messages got a second", m.BROKER_QPS, "sum by (broker) ({})", _BROKER, "{{broker}}"),
    ("Topics with most messages", m.MESSAGES_IN, "topk(10, sum by (topic) (rate({}[5m])))", _TOPIC, "{{topic}}"),
    ("Bytes put a second", m.BYTES_IN, "sum by (node_id) (rate({}[5m]))", _TOPIC, "{{node_id}}"),
    ("Lag of groups", m.LAG, "topk(10, sum by (consumer_group, topic) ({}))", _GROUP, "{{consumer_group}} {{topic}}"),
    ("Age of what groups take, ms", m.LAG_LATENCY, "topk(10, max by (consumer_group, topic) ({}))", _GROUP, "{{consumer_group}} {{topic}}"),
    ("Dead letters", m.DLQ_OFFSET, "sum by (group) (increase({}[1h]))", _DEAD, "{{group}}"),
    ("Messages given back", m.SEND_BACKS, "sum by (consumer_group) (rate({}[5m]))", _GROUP, "{{consumer_group}}"),
    ("Members of groups", m.CONSUMERS, "sum by (consumer_group) ({})", _OF_GROUP, "{{consumer_group}}"),
    ("Subscription conflicts", m.CONFLICTS, "sum by (node_id) ({})", _NODE, "{{node_id}}"),
    ("Connections", m.BROKER_CONNECTIONS, "sum by (node_id) ({})", _NODE, "{{node_id}}"),
    ("Requests that wait", m.WATERMARK, "max by (node_id, processor) ({}) > 0", _NODE, "{{node_id}} {{processor}}"),
    ("Refusals a second", m.REFUSALS, "sum by (instance, kind) (rate({}[5m])) > 0", _ALL, "{{instance}} {{kind}}"),
    ("Errors of tasks", m.TASK_FAILURES, "sum by (instance, task) (increase({}[10m])) > 0", _ALL, "{{instance}} {{task}}"),
    ("Used share of disks", m.DISK_USED, "max by (node_id, disk) ({})", _NODE, "{{node_id}} {{disk}}"),
    ("Bytes until messages are refused", m.DISK_ROOM, "min by (node_id, disk) ({})", _NODE, "{{node_id}} {{disk}}"),
    ("Commit log, bytes", m.STORAGE_SIZE, "sum by (node_id) ({})", _NODE, "{{node_id}}"),
    ("Not synced, bytes", m.FLUSH_BEHIND, "max by (node_id) ({})", _NODE, "{{node_id}}"),
    ("Seconds of a sync", m.FSYNC, "rate({}_sum[5m]) / rate({}_count[5m])", _NODE, "{{node_id}}"),
    ("Waits for the event loop, s", m.LOOP_LAG, "max by (instance) ({})", _ALL, "{{instance}}"),
    ("Masters", m.ROLE, 'max by (broker) ({}{role="master"})', _NODE, "{{broker}}"),
    ("Replicas in step", m.REPLICAS_IN_STEP, "max by (node_id) ({})", _NODE, "{{node_id}}"),
    ("Registered with name servers", m.REGISTERED, "min by (node_id, namesrv) ({})", _NODE, "{{node_id}} {{namesrv}}"),
    ("Days until certificates end", m.CERTIFICATE_END, "min by (instance, file) ({} - time()) / 86400", _ALL, "{{instance}} {{file}}"),
    ("Processors in use", m.CPU, f"rate({{}}[5m]) and on (job, instance) {m.BUILD.name}", _ALL, "{{instance}}"),
    ("Resident memory, bytes", m.RESIDENT, f"{{}} and on (job, instance) {m.BUILD.name}", _ALL, "{{instance}}"),
)  # fmt: skip


class Alert(NamedTuple):
    """One rule. `query` has {} for the metric's name, and JOB for that of Prometheus' job."""

    name: str
    family: Family
    query: str
    lasts: str
    severity: str
    summary: str


# A counter that is born with its first count grows, too: where its broker was scraped then.
_GROWS: Final = (
    "{} - {} offset 15m > 0 or ({} > 0 unless {} offset 15m) and on (cluster, %s) %s offset 15m"
)
_REFUSED: Final = "sum by (instance, kind) (increase({}{kind=~"

ALERTS: Final = (
    Alert("RocketMQServerDown", _UP, '{}{job="JOB"} == 0', "1m", "critical", "{{ $labels.instance }} is not reached: it is dead, or cut off"),
    Alert("RocketMQNoServer", _UP, 'absent({}{job="JOB"} == 1)', "1m", "critical", "No server is reached"),
    Alert("RocketMQBrokerLeft", m.BROKER_UP, "{} == 0", "5m", "warning", "{{ $labels.broker }} {{ $labels.broker_id }} at {{ $labels.address }} is missing at {{ $labels.instance }} ({{ $labels.why }}): roquette cluster shows who is there"),
    Alert("RocketMQNotReady", m.SERVER_READY, "{} == 0", "2m", "critical", "{{ $labels.instance }} is not ready: its page /readyz says why"),
    Alert("RocketMQNotRegistered", m.REGISTERED, "{} == 0", "1m", "critical", "Name server {{ $labels.namesrv }} does not take the registration of {{ $labels.node_id }}, whose log says why: clients do not find it there"),
    Alert("RocketMQNoMaster", m.HAS_MASTER, "min by (cluster, broker) ({}) == 0", "1m", "critical", "{{ $labels.broker }} has no master: nobody can send to it; roquette doctor says what to do"),
    Alert("RocketMQConsumerLagOld", m.LAG_LATENCY, "{} > 300000", "5m", "warning", "Group {{ $labels.consumer_group }} takes messages of {{ $labels.topic }} that are older than 5 minutes"),
    Alert("RocketMQConsumerLagGrows", m.LAG, "deriv({}[15m]) > 0 and {} > 10000", "15m", "warning", "Group {{ $labels.consumer_group }} falls behind on {{ $labels.topic }}"),
    Alert("RocketMQDeadLetters", m.DLQ_OFFSET, _GROWS % ("broker", m.BROKER_TPS.name), "0m", "warning", "Messages of group {{ $labels.group }} became dead letters"),
    Alert("RocketMQDeletedUnread", m.DELETED_UNREAD, _GROWS % ("node_id", m.SENDS_FAILED.name), "0m", "critical", "Messages of {{ $labels.topic }} were deleted before group {{ $labels.consumer_group }} had read them"),
    Alert("RocketMQSubscriptionConflict", m.CONFLICTS, "{} > 0", "2m", "critical", "Members of a group subscribe differently at {{ $labels.node_id }}: messages reach nobody; the broker's log names them"),
    Alert("RocketMQDuplicateClientIds", m.DUPLICATES, "increase({}[10m]) > 0", "0m", "warning", "Two clients have one id at {{ $labels.node_id }}; the broker's log names them"),
    Alert("RocketMQAccessRefused", m.REFUSALS, _REFUSED + '"unproven|denied"}[10m])) > 5', "0m", "warning", "{{ $labels.instance }} refuses who is {{ $labels.kind }}: the lines of roquette.audit name users and addresses"),
    Alert("RocketMQRequestsRefused", m.REFUSALS, _REFUSED + '"busy|names|connections"}[5m])) > 0', "5m", "warning", "{{ $labels.instance }} refuses requests ({{ $labels.kind }}): it has more of them than it may; its log names the bound"),
    Alert("RocketMQRefusesMessages", m.REFUSING, "{} > 0", "0m", "critical", "{{ $labels.node_id }} refuses messages: its disk is full"),
    Alert("RocketMQRefusesForReplicas", m.REFUSING_ALONE, "{} > 0", "1m", "critical", "{{ $labels.node_id }} refuses messages: too few replicas are in step"),
    Alert("RocketMQDiskFills", m.DISK_ROOM, "predict_linear({}[6h], 86400) < 0", "30m", "warning", "The {{ $labels.disk }} disk of {{ $labels.node_id }} is so full within a day that messages are refused"),
    Alert("RocketMQTablesUnwritten", m.TABLES_UNWRITTEN, "{} > 0", "1m", "critical", "{{ $labels.node_id }} cannot write its tables, whose changes a restart undoes; its log names them"),
    Alert("RocketMQSyncSlow", m.FSYNC, "rate({}_sum[5m]) / rate({}_count[5m]) > 0.1", "10m", "warning", "A sync at {{ $labels.node_id }} takes more than 100 ms"),
    Alert("RocketMQEventLoopWaits", m.LOOP_LAG, "{} > 0.5", "2m", "warning", "The event loop of {{ $labels.instance }} is held for more than half a second"),
    Alert("RocketMQTaskFails", m.TASK_ROW, "{} >= 3", "1m", "critical", "Task {{ $labels.task }} of {{ $labels.instance }} fails again and again"),
    Alert("RocketMQReplicaGone", m.REPLICAS, "{} < max_over_time({}[1h])", "5m", "warning", "{{ $labels.node_id }} has fewer replicas than within the last hour"),
    Alert("RocketMQReplicaOutOfStep", m.REPLICAS_IN_STEP, f"{{}} < {m.REPLICAS_EXPECTED.name} or {{}} < {m.REPLICAS.name}", "5m", "warning", "{{ $labels.node_id }} has fewer replicas in step than there should be"),
    Alert("RocketMQReplicaCutOff", m.FOLLOWS, "{} == 0", "2m", "warning", "{{ $labels.node_id }} is not connected to its master, and gets no messages"),
    Alert("RocketMQReplicaBehind", m.REPLICA_LAG, "{} > 67108864", "5m", "warning", "A replica of {{ $labels.node_id }} lacks more than 64 MiB"),
    Alert("RocketMQGroupTrouble", m.GROUP_TROUBLE, "{} > 0", "1m", "critical", "{{ $labels.node_id }} has a trouble with its group ({{ $labels.kind }}): roquette doctor says what to do"),
    Alert("RocketMQCertificateEnds", m.CERTIFICATE_END, "{} - time() < 1209600", "10m", "warning", "The certificate in {{ $labels.file }} of {{ $labels.instance }} ends within two weeks"),
    Alert("RocketMQCertificateEnded", m.CERTIFICATE_END, "{} - time() < 86400", "5m", "critical", "The certificate in {{ $labels.file }} of {{ $labels.instance }} has ended, or does within a day: nobody can connect then"),
    Alert("RocketMQClockOff", m.TIME, "abs({} - timestamp({})) > 10", "5m", "warning", "The clock of {{ $labels.instance }} is more than 10 seconds away from that of Prometheus"),
    Alert("RocketMQMetricsLeftOut", m.SERIES_DROPPED, '{}{metric=""} > 0', "10m", "info", "{{ $labels.node_id }} leaves series out of its metrics (metricsMaxSeries, metricsMaxSamples)"),
)  # fmt: skip


def prometheus_rules(job: str = "rocketmq") -> dict[str, Any]:
    """A rule file: YAML takes its JSON as it is. `job`: the name of Prometheus' job that scrapes the servers."""
    rules = [
        {
            "alert": each.name,
            "expr": _query(each.family, each.query).replace("JOB", job),
            "for": each.lasts,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "description": each.family.meaning},
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": "rocketmq", "rules": rules}]}


def grafana_board() -> dict[str, Any]:
    """A board to import, or to provide as a file: its variables are the data source, and what it shows."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "description": family.meaning,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "targets": [
                {
                    "refId": "A",
                    "datasource": source,
                    "expr": _query(family, query, shown),
                    "legendFormat": legend,
                }
            ],
        }
        for number, (title, family, query, shown, legend) in enumerate(_PANELS)
    ]
    asked = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": source,
                "query": f"label_values({family.name}{shown}, {label})",
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, family, shown, label in _VARIABLES
        ),
    ]
    return {
        "title": "RocketMQ",
        "uid": "roquette",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": asked},
        "panels": panels,
    }


def _query(family: Family, query: str, shown: str = "") -> str:
    """A query of the metric, and of what the board's variables leave of it."""

    def named(found: re.Match[str]) -> str:
        return f"{family.name}{found[1]}{shown}"

    return re.sub(r"\{\}(_sum|_count|)", named, query).replace("}{", ",")
