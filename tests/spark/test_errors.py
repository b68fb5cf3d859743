"""What a newcomer meets is one line that says what to do."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import struct_of

from roquette.errors import (
    ConnectError,
    CorruptRecord,
    RequestTimeout,
    RoquetteError,
    RouteNotFound,
)
from roquette.message.message import MessageQueue
from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.values.errors import advised, plain_errors, plain_message, tell_in_one_line
from roquette_spark.values.options import ReadOptions

OPTIONS = ReadOptions(namesrv_addr="127.0.0.1:9876;ns2:9876", topics=("T",))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({MessageQueue("orders", "broker-a", 0): []}) as cluster:
        yield cluster


def refusal(**options: str) -> str:
    with pytest.raises(RoquetteError) as caught:
        RocketmqDataSource(options).schema()
    text = str(caught.value)
    assert "\n" not in text
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"  # Spark shows the line and no stack of Python
    return text


def test_a_wrong_option(cluster: FakeCluster) -> None:
    text = refusal(namesrvAddr=cluster.address, subscrib="orders")

    assert text == "rocketmq: unknown option subscrib; did you mean subscribe?"


def test_a_missing_topic(cluster: FakeCluster) -> None:
    text = refusal(namesrvAddr=cluster.address, subscribe="order")

    assert text == (
        f"rocketmq: topic order does not exist at {cluster.address}; did you mean orders?"
    )


def test_a_name_server_that_is_not_there() -> None:
    text = refusal(namesrvAddr="127.0.0.1:1", subscribe="orders")

    assert text.startswith("rocketmq: no name server answers (connect to 127.0.0.1:1 failed:")
    assert text.endswith("is it running, and is option namesrvAddr right?")


def test_a_name_that_does_not_resolve() -> None:
    text = refusal(namesrvAddr="nowhere.invalid:9876", subscribe="orders")

    assert text.startswith("rocketmq: no name server answers (connect to nowhere.invalid:9876")


def test_no_pyarrow() -> None:
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyarrow", "numpy"):
            raise ModuleNotFoundError(name, name=name)
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pyarrow" else real(name, *more)
sys.meta_path.insert(0, Absent())
import pyspark_rocketmq
try:
    pyspark_rocketmq.DefaultSource({"namesrvAddr": "a:1", "subscribe": "T"}).schema()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.startswith(
        "ConfigError rocketmq: pyarrow is not installed where Spark's Python runs: pip install"
    )


def test_an_unknown_column_and_a_wrong_type(cluster: FakeCluster) -> None:
    options = {"namesrvAddr": cluster.address, "subscribe": "orders"}

    assert "unknown column bodi; known: topic, " in refusal(columns="bodi", **options)
    with pytest.raises(RoquetteError, match="rocketmq: column queue_id is int, not string"):
        RocketmqDataSource(options).reader(struct_of(queue_id="string"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectError("connect to ns2:9876 failed: x"), "no name server answers"),
        (RequestTimeout("10.0.0.3:10911 did not answer within 3 s"), "a broker does not answer"),
        (RouteNotFound("T", "no broker b in the route of T"), "no broker serves T any more"),
        (CorruptRecord("record at 5\nhas size 0"), "rocketmq: record at 5 has size 0"),
    ],
)
def test_errors_of_the_network_and_of_records_say_what_to_do(
    error: RoquetteError, text: str
) -> None:
    found = str(advised(error, OPTIONS.namesrv_addr))

    assert found.startswith("rocketmq: ")
    assert text in found
    assert "\n" not in found


def test_errors_that_are_not_ours_pass_as_they_are() -> None:
    with pytest.raises(KeyError), plain_errors(OPTIONS.namesrv_addr):
        raise KeyError("a bug")
    assert not os.environ["SPARK_HIDE_TRACEBACK"]


def test_our_line_is_found_in_what_spark_makes_of_it() -> None:
    of_spark = RuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance invoked method `schema`: "
        "roquette.errors.ConfigError: rocketmq: unknown option x; known: y\n\n"
        "JVM stacktrace:\norg.apache.spark.sql.AnalysisException: (...)"
    )

    assert plain_message(of_spark) == "rocketmq: unknown option x; known: y"
    assert plain_message(RuntimeError("another error: rocketmq is a word")) is None


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: rocketmq. Make sure the provider name is correct",
            "rocketmq: the Python that Spark runs has no Roquette: export PYSPARK_PYTHON=",
        ),
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "rocketmq" cannot be written in the "Ignore" mode.',
            "rocketmq: messages are only appended",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: rabbitmq.", None),
    ],
)
def test_what_spark_says_itself_has_our_words(said: str, line: str | None) -> None:
    found = plain_message(RuntimeError(said))

    assert found is None if line is None else (found or "").startswith(line)


def test_a_script_ends_with_the_line_and_with_a_traceback_for_what_is_not_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    tell_in_one_line()
    for error in (
        RouteNotFound("T"),
        RuntimeError(
            "of Spark:\nroquette.errors.ConfigError: rocketmq: wrong\n\nJVM stacktrace:\nx"
        ),
        RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"),
    ):
        sys.excepthook(type(error), error, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["error: No route info of this topic: T", "error: rocketmq: wrong"]
    assert lines[2].startswith("error: Java did not start: roquette spark doctor says why")
    assert len(lines) == 3

    try:
        raise KeyError("a bug")
    except KeyError as bug:
        sys.excepthook(KeyError, bug, bug.__traceback__)
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):")

    def mine(*_: object) -> None: ...

    monkeypatch.setattr(sys, "excepthook", mine)
    tell_in_one_line()
    assert sys.excepthook is mine
