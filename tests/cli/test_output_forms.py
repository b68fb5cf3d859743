"""The forms of --output, the question before what destroys, and --watch."""

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.cli.conftest import Roquette
from typer.testing import CliRunner

from roquette.cli import connect
from roquette.cli.output import Output, prints_lines, show, show_value
from roquette.errors import ConfigError

NASTY = ["a: b", "", "- x", "no", "1e3", "é\n\t\"'", "\x7f\x85", "{}", "#", "😀"]


class Row(msgspec.Struct):
    name: str
    count: int
    good: bool
    parts: list[str] = []


def printed(capsys: pytest.CaptureFixture[str], rows: list[Row], form: Output) -> str:
    show(rows, form)
    return capsys.readouterr().out


def test_every_form_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(name, at, at % 2 == 0, [name] * at) for at, name in enumerate(NASTY)]
    plain = msgspec.to_builtins(rows)

    assert json.loads(printed(capsys, rows, Output.JSON)) == plain
    lines = printed(capsys, rows, Output.JSONL).split("\n")
    assert [json.loads(line) for line in lines[:-1]] == plain
    assert yaml.safe_load(printed(capsys, rows, Output.YAML)) == plain
    fields = list(csv.DictReader(io.StringIO(printed(capsys, rows, Output.CSV), newline="")))
    assert [field["name"] for field in fields] == NASTY
    assert [json.loads(field["parts"]) for field in fields] == [row.parts for row in rows]
    assert [json.loads(field["good"]) for field in fields] == [row.good for row in rows]


def test_no_rows_and_nested_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert yaml.safe_load(printed(capsys, [], Output.YAML)) == []
    assert printed(capsys, [], Output.JSONL) == printed(capsys, [], Output.CSV) == ""
    value = {"a b": {"no": [[1, [2]], {}, {"x": None}]}, "true": 1.5, "empty": []}
    for form in (Output.JSON, Output.JSONL, Output.YAML):
        show_value(value, form)
        assert yaml.safe_load(capsys.readouterr().out) == value
    show_value(value, Output.CSV)
    assert capsys.readouterr().out.splitlines()[0] == "a b,true,empty"


def test_what_has_no_end_has_no_yaml() -> None:
    assert prints_lines(Output.JSON) and prints_lines(Output.JSONL)
    assert not prints_lines(Output.TABLE)
    with pytest.raises(ConfigError, match="--output yaml"):
        prints_lines(Output.YAML)


def test_what_destroys_is_not_done_without_a_word(roquette: Roquette) -> None:
    roquette("topic", "create", "precious")

    refused = roquette("topic", "delete", "precious", stdin="y\n")

    assert isinstance(refused.exception, ConfigError)
    assert "there is no terminal to ask on; say --yes to do it" in str(refused.exception)
    assert "precious" in roquette("topic", "list").stdout
    assert roquette("topic", "delete", "precious", "--yes").exit_code == 0


def test_watch_shows_it_again_until_ctrl_c(
    roquette: Roquette, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def pause(milliseconds: int) -> None:
        pauses.append(milliseconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("roquette.base.executor.pause", pause)
    seen = roquette("cluster", "--watch", "--every", "0.5", "-o", "jsonl")

    assert pauses == [500, 500]
    assert len(seen.stdout.splitlines()) == 2
    assert connect.CLEAR not in seen.stdout


def test_options_come_from_the_environment(
    roquette: Roquette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQUETTE_OUTPUT", "jsonl")
    assert json.loads(roquette("cluster").stdout)["answers"] is True
    monkeypatch.setenv("ROQUETTE_CLUSTER_OUTPUT", "csv")
    assert json.loads(roquette("cluster").stdout)["answers"] is True  # the general one comes first
    monkeypatch.setenv("ROQUETTE_TOPIC_LIST_SYSTEM", "true")
    assert "TBW102" in roquette("topic", "list").stdout


def test_contexts(tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from roquette.apps.main import app

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        if done.exception is not None:
            raise done.exception
        return done.stdout

    path = tmp_path / "config" / "roquette" / "contexts.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert json.loads(run("context", "ls", "-o", "json")) == []
    run("context", "add", "here", "-n", namesrv, "--use")
    run("context", "add", "nowhere", "-n", "127.0.0.1:1", "--login", "some.conf")
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(run("cluster", "-o", "jsonl"))["answers"] is True
    rows = json.loads(run("context", "ls", "-o", "json"))
    assert [(row["context"], row["current"]) for row in rows] == [
        ("here", True),
        ("nowhere", False),
    ]
    assert rows[1]["login"].endswith("/some.conf")

    run("context", "add", "more", "-n", namesrv, "--brokers", "broker-x; broker-y")
    assert (
        json.loads(run("context", "show", "more", "-o", "json"))["brokers"] == "broker-x;broker-y"
    )
    missed = CliRunner().invoke(app, ["cluster", "--context", "more", "-o", "json"])
    assert missed.exit_code == 10
    assert [(row["broker"], row["error"]) for row in json.loads(missed.stdout)][1:] == [
        ("broker-x", "no name server knows its master"),
        ("broker-y", "no name server knows its master"),
    ]
    assert CliRunner().invoke(app, ["doctor", "--context", "more"]).stdout.count("RQ-D040") == 2
    file = tmp_path / "cluster.yaml"
    file.write_text("brokers:\n  '*': {fileReservedTime: 72}\n  broker-x:\n  broker-z: {}\n")
    missed = CliRunner().invoke(
        app, ["cluster", "--context", "more", "--file", str(file), "-o", "json"]
    )
    assert missed.exit_code == 10
    names = [row["broker"] for row in json.loads(missed.stdout)][1:]
    assert names == ["broker-x", "broker-y", "broker-z"]
    looked = CliRunner().invoke(app, ["doctor", "-n", namesrv, "-f", str(file), "-o", "json"])
    assert looked.exit_code == 10
    missing = {row["subject"] for row in json.loads(looked.stdout) if row["code"] == "RQ-D040"}
    assert missing == {"broker broker-x", "broker broker-z"}
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read"):
        run("doctor", "-f", "absent.yaml")
    file.write_text("broker:\n  broker-x: {}\n")
    with pytest.raises(ConfigError, match="line 1: the file has no broker"):
        run("cluster", "-f", str(file))
    run("context", "rm", "more", "--yes")
    with pytest.raises(ConfigError, match=r"login file .*some.conf cannot be read"):
        run("cluster", "--context", "nowhere")
    monkeypatch.setenv("ROQUETTE_CONTEXT", "nowhere")
    assert json.loads(run("context", "show", "-o", "json"))["context"] == "nowhere"
    assert run("produce", "t", "x", "--context", "here") == ""
    with pytest.raises(ConfigError, match="no context heer; did you mean here"):
        run("consume", "t", "--context", "heer")
    with pytest.raises(ConfigError, match="not both"):
        run("cluster", "--context", "here", "-n", namesrv)
    with pytest.raises(ConfigError, match="letters, digits"):
        run("context", "add", "a/b", "-n", namesrv)

    with pytest.raises(ConfigError, match="say --yes"):
        run("context", "rm", "here")
    run("context", "rm", "here", "--yes")
    monkeypatch.delenv("ROQUETTE_CONTEXT")
    assert json.loads(run("context", "show", "-o", "json"))["namesrv"] == "127.0.0.1:9876"
    path.write_text('{"contexts": 5}')
    with pytest.raises(ConfigError, match=r"contexts.json cannot be read: Expected `object`"):
        run("cluster")
