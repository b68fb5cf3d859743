"""Captures what Apache's proxy says to raw requests: `python tools/golden/capture_grpc.py` (JDK 17, Maven).

Starts Apache's name server and its proxy 5.5.0 in LOCAL mode, asks what tests/golden/grpc_steps.py lists, and writes
tests/golden/grpc/replies.json.
"""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
OUTPUT = ROOT / "tests" / "golden" / "grpc" / "replies.json"


def main() -> None:
    """Start, ask, write, end."""
    from tests.golden.grpc_steps import SETTINGS, replies
    from tests.interop.peers import call, start_apache_namesrv
    from tests.interop.proxies import start_apache_proxy

    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        namesrv = start_apache_namesrv(folder / "namesrv")
        try:
            door = start_apache_proxy(folder / "proxy", namesrv.address, settings=SETTINGS)
            try:
                said = replies(door.grpc, partial(call, door.broker.address))
            finally:
                door.broker.discard()
        finally:
            namesrv.discard()
    OUTPUT.parent.mkdir(exist_ok=True)
    lines = (f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in said.items())
    OUTPUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"captured grpc: {len(said)} replies")


if __name__ == "__main__":
    main()
