"""The programs of the guides run as they stand, each in a process of its own, against a server process of ours."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import peers

DOCS = peers.ROOT / "docs"
PROGRAMS = {  # how many each page has, so that none is overlooked
    "client.md": 1,
    "quickstart.md": 5,
    "howto/applications.md": 1,
    "howto/idempotent-consumers.md": 2,
    "howto/ordering.md": 1,
    "howto/testing.md": 2,
    "howto/transactions.md": 1,
}


def programs(page: str) -> list[str]:
    """The page's Python programs; what is marked `python fragment` is none."""
    text = (DOCS / page).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guides")
    program = str(Path(sys.executable).parent / "roquette")
    ports = ("--namesrv-port", str(peers.free_port()), "--broker-port", str(peers.free_port()))
    server = peers.Process([program, "dev", *ports, "--store", str(folder / "store")], folder, {})
    try:
        line = server.line_with("ready ", 30)
        yield line.split("namesrv=")[1].split()[0]
    finally:
        server.stop()


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_page_has_its_programs(page: str) -> None:
    assert len(programs(page)) == PROGRAMS[page]


@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page in PROGRAMS for number in range(PROGRAMS[page])]
)
def test_a_program_runs(page: str, number: int, name_server: str, tmp_path: Path) -> None:
    text = programs(page)[number].replace("127.0.0.1:9876", name_server)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "No route info" not in line]
    assert "rror" not in "\n".join(said), done.stderr
