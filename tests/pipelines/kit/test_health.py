"""What a pipeline that follows shows to those who watch it."""

import urllib.error
import urllib.request

import pytest
from tests.pipelines.kit.test_table import SetClock

from roquette.errors import ConfigError, ConnectError
from roquette_spark.pipelines.kit.stream import LOOK_S, STALE_MS, RunHealth, TableHealth


class Brokers:
    """Answers for one table."""

    def __init__(self) -> None:
        self.found = TableHealth("T", lag=7, batch=3, rows=40)
        self.down = False

    def look(self) -> list[TableHealth]:
        if self.down:
            raise ConnectError("no broker answers")
        return [self.found]


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(port: int) -> dict[str, float]:
    lines = page(port, "/metrics")[1].splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("roquette_pipeline_"): float(value) for name, value in pairs}


def test_lag_batch_and_age_are_shown_and_a_table_that_stands_still_is_unwell() -> None:
    clock, brokers = SetClock(), Brokers()
    health = RunHealth("archive", brokers.look, clock, interval_s=60)
    table = '{pipeline="archive",topic="T"}'

    said: list[str] = []
    with health.served("127.0.0.1:0", said.append) as look:
        port = int(said[0].rpartition(":")[2])
        assert page(port, "/readyz")[0] == 503
        look()
        assert (page(port, "/readyz")[0], page(port, "/healthz")[0]) == (200, 200)
        first = samples(port)
        assert [
            first[f"{name}{table}"] for name in ("lag_messages", "last_batch", "rows_total")
        ] == [
            7,
            3,
            40,
        ]
        clock.ms += STALE_MS + 1
        brokers.down = True
        health.update()  # nobody answers: what was known stays, and its age grows
        status, text = page(port, "/healthz")
        assert (status, "T: 7 messages wait, nothing committed for 300 s" in text) == (503, True)
        assert samples(port)['lag_age_seconds{pipeline="archive"}'] > STALE_MS / 1000
        brokers.down, brokers.found = False, TableHealth("T", lag=5, batch=4, rows=42)
        clock.ms += int(LOOK_S * 1000)
        health.update()
        assert page(port, "/healthz")[0] == 200
        assert samples(port)[f"last_commit_age_seconds{table}"] == 0
        with (
            pytest.raises(ConfigError, match="cannot listen on"),
            health.served(f"127.0.0.1:{port}", print),
        ):
            pass


def test_brokers_are_not_asked_all_the_time() -> None:
    clock, brokers = SetClock(), Brokers()
    health = RunHealth("archive", brokers.look, clock, interval_s=1)
    health.update()
    brokers.found = TableHealth("T", lag=0, batch=9, rows=9)

    health.update()
    assert "nothing committed" not in health.trouble()
    clock.ms += STALE_MS + 1
    assert health.trouble()  # not asked meanwhile
    health.update()
    assert health.trouble() == ""
