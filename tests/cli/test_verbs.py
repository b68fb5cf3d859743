"""The verbs for people, against a real `roquette dev`."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Roquette
from tests.real_servers import RawConnection

from roquette.errors import ConfigError, RouteNotFound


def test_what_is_produced_is_consumed(roquette: Roquette) -> None:
    assert roquette("produce", "verbs", "hello", "world", "--tag", "a", "--key", "k").exit_code == 0

    found = roquette("consume", "verbs", "--json")

    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert sorted(line["body"] for line in lines) == ["hello", "world"]
    assert {line["tag"] for line in lines} == {"a"}
    assert {tuple(line["keys"]) for line in lines} == {("k",)}


def test_lines_of_standard_input_and_of_a_file_are_messages(
    roquette: Roquette, tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("c\nd\n")

    assert roquette("produce", "lines", stdin="a\nb\n").exit_code == 0
    assert roquette("produce", "lines", "--file", str(path)).exit_code == 0

    assert sorted(roquette("consume", "lines").stdout.split()) == ["a", "b", "c", "d"]


def test_offset_forms(roquette: Roquette) -> None:
    roquette("topic", "create", "offsets", "--queues", "1")
    roquette("produce", "offsets", "0", "1", "2", "3")

    assert roquette("consume", "offsets", "--offset", "2").stdout.split() == ["2", "3"]
    assert roquette("consume", "offsets", "--offset", "-1").stdout.split() == ["3"]
    assert roquette("consume", "offsets", "--offset", "first", "-c", "1").stdout.split() == ["0"]
    assert roquette("consume", "offsets", "--offset", "last").stdout == ""
    assert roquette("consume", "offsets", "--offset", "timestamp:0").stdout.split() == [
        "0",
        "1",
        "2",
        "3",
    ]
    with pytest.raises(ConfigError, match="'yesterday' is no place in a queue"):
        raise roquette("consume", "offsets", "--offset", "yesterday").exception or AssertionError


def test_tags_filter(roquette: Roquette) -> None:
    roquette("produce", "tagged", "x", "--tag", "a")
    roquette("produce", "tagged", "y", "--tag", "b")

    assert roquette("consume", "tagged", "--tag", "b || c").stdout.split() == ["y"]


def test_a_group_acknowledges_and_its_lag_is_shown(roquette: Roquette) -> None:
    roquette("produce", "lagging", *"abcdef")

    consumed = roquette(
        "consume", "lagging", "--group", "verbs-group", "--offset", "first", "-c", "6"
    )
    lag = json.loads(roquette("group", "lag", "verbs-group", "-o", "json").stdout)
    groups = json.loads(roquette("group", "list", "-o", "json").stdout)

    assert sorted(consumed.stdout.split()) == list("abcdef")
    assert sum(row["consumer_offset"] for row in lag if row["topic"] == "lagging") == 6
    assert sum(row["lag"] for row in lag) == 0
    assert "verbs-group" in [row["group"] for row in groups]


def test_topics_are_created_described_listed_and_deleted(roquette: Roquette) -> None:
    assert roquette("topic", "create", "made", "--queues", "3", "--perm", "4").exit_code == 0

    described = json.loads(roquette("topic", "describe", "made", "-o", "json").stdout)
    assert described["brokers"][0]["read_queues"] == 3
    assert described["brokers"][0]["perm"].startswith("R-")
    assert "made" in roquette("topic", "list").stdout
    assert roquette("topic", "delete", "made", "--yes").exit_code == 0
    assert "made" not in roquette("topic", "list").stdout
    gone = roquette("topic", "delete", "made", "--yes")
    assert isinstance(gone.exception, RouteNotFound)
    assert "roquette topic list" in str(gone.exception)


def test_the_cluster_is_shown(roquette: Roquette) -> None:
    rows = json.loads(roquette("cluster", "-o", "json").stdout)

    assert [row["answers"] for row in rows] == [True]
    assert rows[0]["broker_id"] == 0
    assert "broker id" in roquette("cluster").stdout


def test_bad_words_are_refused_in_words(roquette: Roquette) -> None:
    for words, text in (
        (("topic", "create", "a/b"), "illegal characters"),
        (("topic", "create", "ok", "--perm", "9"), "--perm 9"),
        (("topic", "create", "ok", "--cluster", "nowhere"), "no cluster nowhere"),
        (("group", "lag", "nobody"), "consumed nothing yet"),
        (("produce", "ok", "x", "--file", "y"), "not both"),
        (("produce", "ok", "--file", "/does/not/exist"), "cannot be read"),
        (("consume", "lagging", "--group", "g", "--offset", "5"), "does not go with --group"),
    ):
        error = roquette(*words).exception
        assert isinstance(error, ConfigError), words
        assert text in str(error)


def test_help_names_every_verb(roquette: Roquette) -> None:
    text = roquette("--help").stdout
    for verb in ("namesrv", "broker", "dev", "produce", "consume", "topic", "group", "cluster"):
        assert verb in text
        assert roquette(verb, "--help").exit_code == 0


def test_an_order_topic_has_its_order_configuration(roquette: Roquette, namesrv: str) -> None:
    said = roquette("topic", "create", "ordered", "--queues", "3", "--order").stderr
    assert "orderMessageEnable=true" in said
    with RawConnection(split(namesrv)) as connection:
        assert connection.call(318, {}, b"orderMessageEnable=true")[0]["code"] == 0
        said = roquette("topic", "create", "ordered", "--queues", "5", "--order").stderr
        assert "orderMessageEnable" not in said
        _, body = connection.call(105, {"topic": "ordered"})
        assert json.loads(body)["orderTopicConf"] == "broker-a:5"
        # one broker's topic: entries of the others stay
        fields = {
            "namespace": "ORDER_TOPIC_CONFIG",
            "key": "ordered",
            "value": "broker-z:7;broker-a:1",
        }
        connection.call(100, fields)
        roquette("topic", "create", "ordered", "--queues", "6", "--order", "--broker", "broker-a")
        _, body = connection.call(105, {"topic": "ordered"})
        assert json.loads(body)["orderTopicConf"] == "broker-a:6;broker-z:7"
        connection.call(318, {}, b"orderMessageEnable=false")


def split(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)
