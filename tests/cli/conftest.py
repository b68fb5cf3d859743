"""A `roquette dev` process for the tests of verbs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

ROQUETTE = Path(sys.executable).with_name("roquette")


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server's address of a `roquette dev` that lives as long as the module's tests."""
    log = (tmp_path_factory.mktemp("dev") / "log").open("w")
    command = [ROQUETTE, "dev", "--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        words = dict(word.split("=") for word in process.stdout.readline().split()[1:])
        yield words["namesrv"]
    finally:
        process.terminate()
        assert process.wait(60) == 0
        log.close()


@pytest.fixture
def roquette(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> "Roquette":
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    return Roquette()


class Roquette:
    """Runs verbs in this process."""

    def __call__(self, *words: str, stdin: str | None = None) -> Result:
        from roquette.apps.main import app

        return CliRunner().invoke(app, list(words), input=stdin)
