"""Lineage of runs as OpenLineage's events, received by a server of the test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipelines.lineage import Receiver, receiver
from tests.pipelines.sample import PIPELINE as SAMPLE
from tests.pipelines.sample import SampleOptions

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Progress
from roquette_spark.pipelines.kit.lineage import table_dataset, topic_dataset
from roquette_spark.pipelines.kit.running import run_pipeline

__all__ = ["receiver"]


class Heard(Progress):
    """What was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("URL", "CONFIG", "API_KEY", "NAMESPACE", "DISABLED"):
        monkeypatch.delenv(f"OPENLINEAGE_{name}", raising=False)


def run(tmp_path: Path, topic: str, url: str = "") -> list[str]:
    heard = Heard()
    options = SampleOptions(topics=(topic,), lineage=url)
    run_pipeline(SAMPLE, options, directory=str(tmp_path / "report"), progress=heard)
    return heard.lines


def test_a_run_is_a_start_and_an_end_of_one_id(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k1")

    assert run(tmp_path, "good", receiver.url) == []
    run(tmp_path, "bad", receiver.url)  # a check fails
    with pytest.raises(ConfigError):
        run(tmp_path, "wrong", receiver.url)

    assert receiver.states == ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"]
    first, second, *others, last = receiver.events
    assert first["run"]["runId"] == second["run"]["runId"] != last["run"]["runId"]
    assert (first["job"]["namespace"], first["job"]["name"]) == ("shop", "roquette.sample.good")
    assert others[1]["run"]["facets"]["errorMessage"]["message"] == "done"
    assert last["run"]["facets"]["errorMessage"]["message"] == "sample: topic wrong is wrong"
    assert receiver.keys == {"Bearer k1"}


@pytest.mark.parametrize("how", ["variable", "file"])
def test_openlineages_own_configuration_is_enough(
    how: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "variable":
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    else:
        Path("openlineage.yml").write_text(f"transport:\n  type: http\n  url: {receiver.url}\n")

    run(tmp_path, "good")

    assert receiver.states == ["START", "COMPLETE"]


def test_what_cannot_be_sent_ends_no_run(receiver: Receiver, tmp_path: Path) -> None:
    receiver.status = 400

    lines = run(tmp_path, "good", receiver.url)

    assert [line.split(" was not sent")[0] for line in lines] == [
        "warning: the lineage event START",
        "warning: the lineage event COMPLETE",
    ]
    assert json.loads((tmp_path / "report" / "summary.json").read_text())["ok"] is True


@pytest.mark.parametrize("url", ["ftp://x", "nowhere", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--lineage"):
        run(tmp_path, "good", url)


def test_without_configuration_the_client_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tests.pipelines.sample import PIPELINE, SampleOptions\n"
        "from roquette_spark.pipelines.kit.running import run_pipeline\n"
        f"run_pipeline(PIPELINE, SampleOptions(topics=('good',)), directory={str(tmp_path / 'report')!r})\n"
        "print([name for name in sys.modules if name.startswith(('openlineage', 'requests'))])"
    )
    path = ":".join(filter(None, sys.path))

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=90, cwd=tmp_path, env={"PATH": "", "PYTHONPATH": path, "HOME": str(tmp_path)}, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_names_of_datasets() -> None:
    names = [
        (each.namespace, each.name)
        for each in (
            topic_dataset("10.0.0.1:9876;10.0.0.2:9876", "orders"),
            table_dataset("/lake/orders"),
            table_dataset("file:///lake/orders"),
            table_dataset("s3a://bucket/lake/orders"),
        )
    ]

    assert names == [
        ("rocketmq://10.0.0.1:9876", "orders"),
        ("file", "/lake/orders"),
        ("file", "/lake/orders"),
        ("s3://bucket", "lake/orders"),
    ]
