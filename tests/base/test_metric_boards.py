"""Boards and alerts are made from the table of metrics."""

import json
import re

import pytest

from roquette.base.metric_boards import ALERTS, grafana_board, prometheus_rules
from roquette.base.metric_families import FAMILIES

NAMES = re.compile(r"\b(?:rocketmq|kafka|process)_\w+")


def queries() -> list[str]:
    board = [panel["targets"][0]["expr"] for panel in grafana_board()["panels"]]
    return board + [rule["expr"] for rule in prometheus_rules()["groups"][0]["rules"]]


@pytest.mark.parametrize("query", queries())
def test_every_query_names_metrics_that_servers_show(query: str) -> None:
    names = NAMES.findall(query)
    assert names or "up{" in query  # Prometheus' own
    for name in names:
        kind = FAMILIES.get(name)
        if kind is None:
            family = FAMILIES[re.sub("_(sum|count)$", "", name)]
            assert family.kind == "summary"
        else:
            assert kind.kind != "summary"
    assert query.count("(") == query.count(")")
    assert "{}" not in query


def test_names_and_kinds_are_as_prometheus_wants_them() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"(rocketmq|kafka|process)_[a-z_]+", name)
        assert family.meaning.endswith(".")
        assert "\n" not in family.meaning
        if name.endswith("_total"):
            assert family.kind == "counter"


def test_alerts_have_names_of_their_own_and_words() -> None:
    assert len({each.name for each in ALERTS}) == len(ALERTS)
    for rule in prometheus_rules()["groups"][0]["rules"]:
        assert rule["annotations"]["summary"]
        assert re.fullmatch(r"\d+m", rule["for"])
    assert json.loads(json.dumps(grafana_board()))["panels"]


def test_rules_go_by_the_job_that_is_named() -> None:
    texts = [rule["expr"] for rule in prometheus_rules("mq")["groups"][0]["rules"]]
    assert 'up{job="mq"} == 0' in texts
    assert not any("JOB" in text or 'rocketmq"}' in text for text in texts)


def test_the_board_asks_for_what_its_queries_need_and_for_nothing_at_its_import() -> None:
    board = grafana_board()
    asked = {each["name"] for each in board["templating"]["list"]}
    assert asked == {"datasource", "cluster", "broker", "topic", "group"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))) == asked
    assert "__inputs" not in board, "Grafana fills those in at an import alone"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
