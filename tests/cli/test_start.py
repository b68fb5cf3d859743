"""What the command loads before it knows what is wanted: no client, no server, nothing that draws."""

import subprocess
import sys

import pytest

HEAVY = (
    *("roquette.client.producer", "roquette.client.session", "roquette.client.client"),
    *("roquette.broker", "roquette.nameserver.service", "pyspark", "pyarrow", "rich", "uvloop"),
)
SHOW = """
import sys
sys.argv = ["roquette", *{words!r}]
from roquette.apps.entry import main
try:
    main()
except SystemExit:
    pass
print("loaded", *sorted(sys.modules))
"""


@pytest.mark.parametrize("words", [["--version"], ["topic", "list", "--help"]])
def test_a_word_to_the_command_loads_no_client(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(words=words)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "roquette.apps.main" in loaded
    assert not loaded & set(HEAVY), sorted(loaded & set(HEAVY))
