"""`roquette broker drain` and `restore`, `topic resize` and `explain` as a user types them."""

import json
import time
from collections.abc import Callable

from tests.cli.conftest import Roquette
from typer.testing import Result


def test_a_broker_is_drained_and_restored(roquette: Roquette) -> None:
    assert roquette("topic", "create", "drained", "--queues", "2").exit_code == 0
    refused = roquette("broker", "drain", "broker-a", "--yes")
    assert str(refused.exception).startswith("drained is on broker-a alone")

    asked = roquette("broker", "drain", "broker-a", "--force", stdin="y\n")
    assert "no terminal to ask on; say --yes" in str(asked.exception)
    drain = ("broker", "drain", "broker-a", "--force", "--yes")
    assert roquette(*drain).exit_code == 0
    done = roquette(*drain, "--wait", "--settle", "0", "--timeout", "0", "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == []
    assert "left: nothing" in done.stderr
    refused = roquette("produce", "drained", "x")
    assert refused.exit_code != 0

    restored = roquette("broker", "restore", "broker-a")
    assert restored.exit_code == 0 and "RW-" in restored.stderr
    again = roquette("broker", "restore", "broker-a")
    assert "broker-a is not drained" in str(again.exception)
    unknown = roquette("broker", "drain", "broker-x", "--yes")
    assert "knows no broker broker-x" in str(unknown.exception)


def test_a_topic_is_resized(roquette: Roquette) -> None:
    assert roquette("topic", "create", "sized", "--queues", "4").exit_code == 0
    resize = ("topic", "resize", "sized", "--yes", "--queues")
    lossy = roquette(*resize, "4", "--read-queues", "2")
    assert "loses what goes to queue 2" in str(lossy.exception)
    first = roquette(*resize, "2", "-o", "json")
    assert first.exit_code == 0, first.output
    rows = json.loads(first.stdout)
    assert [(row["queue"], row["end_offset"], row["proven"]) for row in rows] == [
        (2, 0, True),
        (3, 0, True),
    ]
    described = json.loads(roquette("topic", "describe", "sized", "-o", "json").stdout)
    assert [(b["write_queues"], b["read_queues"]) for b in described["brokers"]] == [(2, 4)]
    done = roquette(*resize, "2", "--wait", "--settle", "0")
    assert done.exit_code == 0 and "queue 2 and on are gone" in done.stderr
    assert roquette(*resize, "8", "--wait").exit_code == 0
    described = json.loads(roquette("topic", "describe", "sized", "-o", "json").stdout)
    assert [(b["write_queues"], b["read_queues"]) for b in described["brokers"]] == [(8, 8)]


def test_the_life_of_a_message_is_told(roquette: Roquette) -> None:
    roquette("topic", "create", "told", "--queues", "1")
    assert roquette("produce", "told", "--key", "k7", stdin="x\n").exit_code == 0
    found = wait_for(lambda: roquette("explain", "k7", "--topic", "told", "-o", "json"), "stored")
    (life,) = json.loads(found.stdout)
    assert life["topic"] == "told" and len(life["message_id"]) >= 32
    assert [verdict["code"] for verdict in life["verdicts"]] == ["stored", "nobody"]
    people = roquette("explain", life["message_id"])
    assert "stored" in people.stdout and "no group reads told at broker-a" in people.stdout
    missing = roquette("explain", "never-sent")
    assert "no broker has 'never-sent' in any topic" in str(missing.exception)


def wait_for(ask: Callable[[], Result], word: str) -> Result:
    """The index follows the log in a moment."""
    end = time.monotonic() + 30
    while word not in (found := ask()).stdout:
        assert time.monotonic() < end, found.output
    return found
