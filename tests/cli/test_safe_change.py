"""`roquette broker drain` and `restore` as a user types them."""

import json

from tests.cli.conftest import Roquette


def test_a_broker_is_drained_and_restored(roquette: Roquette) -> None:
    assert roquette("topic", "create", "drained", "--queues", "2").exit_code == 0
    refused = roquette("broker", "drain", "broker-a", "--yes")
    assert str(refused.exception).startswith("drained is on broker-a alone")

    asked = roquette("broker", "drain", "broker-a", "--force", stdin="n\n")
    assert asked.exit_code == 1 and "Aborted" in asked.stderr
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
