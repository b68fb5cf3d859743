"""mqadmin's command lines in ours, completion, and every command with what it cannot use."""

import json
import os
import subprocess
import sys

import pytest
from tests.cli.conftest import Roquette

from roquette.cli.java_flags import TRANSLATED, translate
from roquette.cli.java_output import DIRECT
from roquette.errors import ClientError, ConfigError, RoquetteError


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("deleteTopic -n a:1 -t T -c C", "topic delete T --yes --cluster C -n a:1"),
        ("consumerProgress -g G -t T", "group lag G --topic T"),
        ("consumerProgress", "group list"),
        ("resetOffsetByTime -g G -t T -s now -f true", "group seek G --topic T --to @now --yes"),
        ("resetOffsetByTime -g G -t T -s 12", "group seek G --topic T --to @12 --yes"),
        (
            "resetOffsetByTime --group G --topic T -s 2026-09-01#10:00:00:000",
            "group seek G --topic T --to @2026-09-01T10:00:00 --yes",
        ),
        ("queryMsgByOffset -t T -b b -i 1 -o 2", "msg get b:1:2 --topic T"),
        ("sendMessage -t T -p body -k K", "produce T body --key K"),
        ("updateBrokerConfig -c C -k a -v 1", "broker config set a=1 --cluster C"),
    ],
)  # fmt: skip
def test_their_words_are_ours(theirs: str, ours: str) -> None:
    command, *words = theirs.split()
    assert translate(command, words) == ours.split()


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        ("deleteTopic", "-t is missing"),
        ("deleteTopic -t", "-t has no value"),
        ("deleteTopic -t a -t b", "twice"),
        ("clusterList -z 1", "-z is not understood here; -n are"),
        ("resetOffsetByTime -g G -t T -s soon", "yyyy-MM-dd"),
        ("updateBrokerConfig -k a -v 1", "-b or -c"),
    ],
)
def test_what_is_not_understood_is_refused(theirs: str, text: str) -> None:
    command, *words = theirs.split()
    with pytest.raises(ConfigError, match=text):
        translate(command, words)


def test_scripts_run(roquette: Roquette, namesrv: str) -> None:
    made = roquette(
        "mqadmin", "updateTopic", "-n", namesrv, "-t", "scripted", "-c", "DefaultCluster"
    )
    assert made.exit_code == 0 and "TopicConfig [topicName=scripted, " in made.stdout
    typo = roquette("mqadmin", "updateTopik").exception
    assert isinstance(typo, ConfigError) and "did you mean updateTopic" in str(typo)
    assert "scripted" in roquette("mqadmin", "topicList").stdout.split()
    address = json.loads(roquette("cluster", "-o", "json").stdout)[0]["address"]
    found = roquette("mqadmin", "getBrokerConfig", "-b", address).stdout
    assert "brokerName" in found
    assert isinstance(roquette("mqadmin", "getBrokerConfig", "-b", "h:1").exception, ClientError)
    gone = roquette("mqadmin", "deleteTopic", "-t", "scripted")
    assert gone.exit_code == 0 and "topic delete scripted" in gone.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_words_are_completed(shell: str) -> None:
    line = "roquette nam"
    environment = {
        **os.environ,
        "_ROQUETTE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-m", "roquette.apps.entry"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "namesrv" in done.stdout, done.stderr


NOWHERE = ("-n", "127.0.0.1:1")


@pytest.mark.parametrize(
    "words",
    [
        "topic list", "topic describe t", "topic delete t --yes", "group list", "group lag g", "group show g",
        "group seek g --topic t --to last --yes", "group delete g --yes", "client ls", "client stacks g", "cluster",
        "namesrv diff", "namesrv config get", "broker config get", "broker config set a=1 --all", "msg find k --topic t",
        "msg get 0A0000010000000000000001 --topic t", "dlq ls g", "dlq purge g --yes", "broker status",
    ],
)  # fmt: skip
def test_a_dead_name_server_is_said_in_words(words: str) -> None:
    from typer.testing import CliRunner

    from roquette.apps.main import app

    done = CliRunner().invoke(app, [*words.split(), *NOWHERE])
    assert isinstance(done.exception, RoquetteError), (words, done.output)
    assert "127.0.0.1:1" in str(done.exception)


def test_every_sub_command_has_a_line_in_the_documents() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert [name for name in (*TRANSLATED, *DIRECT) if name not in page] == []
