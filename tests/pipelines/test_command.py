"""The verbs of `roquette pipeline`, with a pipeline that needs no Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.errors import ConfigError
from roquette_spark.pipelines.command import MODULES, find_pipeline
from roquette_spark.pipelines.kit.frame import PipelineError


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(MODULES, "sample", "tests.pipelines.sample")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", "ns:1")


def roquette(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_help_lists_every_pipeline_and_every_option() -> None:
    listed = roquette("pipeline", "--help").output
    options = roquette("pipeline", "sample", "--help").output

    for name in MODULES:
        assert f"  {name}" in listed
    for flag in ("--topics", "--rate", "--no-follow", "-n, --namesrv", "--config", "--dry-run"):
        assert flag in options
    assert "Topics. Required." in " ".join(options.split())


@pytest.mark.parametrize("name", list(MODULES))
def test_every_pipeline_says_what_its_options_are(name: str) -> None:
    assert find_pipeline(name).name == name
    assert roquette("pipeline", name, "--help").exit_code == 0


def test_starting_the_command_imports_no_spark() -> None:
    code = (
        "import sys\n"
        "from roquette.apps.main import app\n"
        "from typer.testing import CliRunner\n"
        "heavy = lambda *names: [name for name in names if name in sys.modules]\n"
        "assert CliRunner().invoke(app, ['topic', '--help']).exit_code == 0\n"
        "print(heavy('pyspark', 'pyarrow', 'pandas', 'numpy', 'yaml'))\n"
        "assert CliRunner().invoke(app, ['pipeline', '--help']).exit_code == 0\n"
        "print(heavy('pyspark', 'pandas', 'yaml'))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_a_run_writes_its_report_and_summary() -> None:
    done = roquette("pipeline", "sample", "--topics", "a,b", "--rate", "3", "--password", "secret")

    assert (done.exit_code, done.stdout) == (0, "done\n")
    folder = Path("pipeline-output/sample-001")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["result"] == {"rate": 3, "topics": ["a", "b"]}
    assert (summary["ok"], summary["pipeline"], summary["stopped"]) == (True, "sample", False)
    assert summary["options"]["namesrv"] == "ns:1"
    assert "secret" not in (folder / "summary.json").read_text()
    assert "Sample &lt;1&gt;" in (folder / "report.html").read_text()
    assert roquette("pipeline", "sample", "--topics", "a", "--report", "r").exit_code == 0
    assert Path("r/report.html").exists()
    Path("r/certificate.json").write_text("of an earlier run")
    assert roquette("pipeline", "sample", "--topics", "broken", "--report", "r").exit_code == 1
    assert [path.name for path in Path("r").iterdir()] == ["summary.json"]  # nothing of that one's


def test_a_failed_check_is_exit_status_1() -> None:
    done = roquette("pipeline", "sample", "--topics", "bad", "-o", "json")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["topics"] == ["bad"]
    assert json.loads(Path("pipeline-output/sample-001/summary.json").read_text())["ok"] is False


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(tmp_path: Path) -> None:
    done = roquette("pipeline", "sample", "--topics", "a", "--dry-run")
    as_json = roquette("pipeline", "sample", "--topics", "a", "--dry-run", "-o", "json")

    assert done.stdout.splitlines() == ["reads   topic a", "writes  nothing"]
    assert json.loads(as_json.stdout)["reads"] == ["topic a"]
    assert list(tmp_path.iterdir()) == []


def test_options_come_from_a_file_and_flags_win() -> None:
    Path("o.json").write_text('{"topics": "x", "rate": 5, "namesrv": "file:1"}')

    assert roquette("pipeline", "sample", "-c", "o.json", "--rate", "6").exit_code == 0

    options = json.loads(Path("pipeline-output/sample-001/summary.json").read_text())["options"]
    assert (options["topics"], options["rate"], options["namesrv"]) == (["x"], 6, "file:1")


def test_errors_are_one_line_and_the_summary_has_them() -> None:
    wrong = roquette("pipeline", "sample", "--topics", "wrong").exception
    broken = roquette("pipeline", "sample", "--topics", "broken").exception

    assert isinstance(wrong, ConfigError)
    assert str(wrong) == "sample: topic wrong is wrong"
    assert isinstance(broken, PipelineError)
    assert str(broken).startswith("No route info of this topic: broken: does the topic exist?")
    found = json.loads(Path("pipeline-output/sample-002/summary.json").read_text())
    assert (found["ok"], found["error"]) == (False, str(broken))


def test_an_unknown_pipeline_is_told() -> None:
    done = roquette("pipeline", "archvie")

    assert done.exit_code == 2
    assert "archvie" in done.output
    with pytest.raises(ConfigError, match="there is no pipeline nothing; there are: "):
        find_pipeline("nothing")
