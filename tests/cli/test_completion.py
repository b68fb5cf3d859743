"""What the shell's completion offers: the words that its scripts get, for each shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SHELLS = ["bash", "zsh", "fish"]


def offered(shell: str, line: str, **variables: str) -> list[str]:
    """The values offered at the end of a line."""
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {name: text for name, text in os.environ.items() if "ROQUETTE_" not in name}
    environment |= {"_ROQUETTE_COMPLETE": f"complete_{shell}"} | asked | variables
    done = subprocess.run(
        [Path(sys.executable).with_name("roquette")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    if shell == "zsh":  # _arguments '*: :(("value":"help" "other"))'
        return [value for value, _ in re.findall(r'"([^"]+)"(:"[^"]*")?', done.stdout)]
    return [each.split("\t")[0] for each in done.stdout.splitlines() if each]


@pytest.fixture(scope="module")
def filled(namesrv: str) -> str:
    words = [sys.executable, "-m", "roquette.apps.entry"]
    for topic in ("orders", "orders-late", "parcels"):
        create = [*words, "topic", "create", topic, "--namesrv", namesrv]
        subprocess.run(create, check=True, capture_output=True)
    consume = [*words, "consume", "orders", "-g", "readers", "-c", "1", "--namesrv", namesrv]
    with subprocess.Popen(consume, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as member:
        send = [*words, "produce", "orders", "x", "--namesrv", namesrv]
        subprocess.run(send, check=True, capture_output=True)
        assert member.wait(60) == 0
    return namesrv


@pytest.mark.parametrize("shell", SHELLS)
def test_topics_of_the_cluster_that_the_line_names(filled: str, shell: str) -> None:
    line = f"roquette topic describe -n {filled} ord"
    assert offered(shell, line, NAMESRV_ADDR="127.0.0.1:1") == ["orders", "orders-late"]


def test_groups_brokers_clusters_and_contexts(filled: str, tmp_path: Path) -> None:
    where = {"NAMESRV_ADDR": filled, "XDG_CONFIG_HOME": str(tmp_path)}
    assert "readers" in offered("bash", "roquette group lag ", **where)
    assert offered("bash", "roquette broker drain b", **where) == ["broker-a"]
    assert offered("bash", "roquette topic create t --cluster D", **where) == ["DefaultCluster"]
    (tmp_path / "roquette").mkdir()
    (tmp_path / "roquette" / "contexts.json").write_text(
        '{"contexts": {"north": {"namesrv": "10.0.0.1:9876"}, "south": {"namesrv": "10.0.0.2:9876"}}}'
    )
    assert offered("bash", "roquette context use no", **where) == ["north"]


@pytest.mark.parametrize("shell", SHELLS)
def test_words_of_the_program_and_silence_without_a_cluster(shell: str) -> None:
    nowhere = {"NAMESRV_ADDR": "127.0.0.1:1"}
    assert offered(shell, "roquette topic des", **nowhere) == ["describe"]
    assert offered(shell, "roquette topic describe o", **nowhere) == []
