"""The programs of docs/quickstart.md run as they stand, against a server process of ours."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import peers

PAGE = peers.ROOT / "docs" / "quickstart.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("quickstart")
    program = str(Path(sys.executable).parent / "roquette")
    ports = ("--namesrv-port", str(peers.free_port()), "--broker-port", str(peers.free_port()))
    server = peers.Process([program, "dev", *ports, "--store", str(folder / "store")], folder, {})
    try:
        line = server.line_with("ready ", 30)
        yield line.split("namesrv=")[1].split()[0]
    finally:
        server.stop()


def test_the_page_has_its_programs() -> None:
    assert len(PROGRAMS) == 6


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_runs(number: int, name_server: str) -> None:
    text = PROGRAMS[number].replace("127.0.0.1:9876", name_server)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stderr, done.stderr
