"""`python -m benchmarks.imports`: CPU seconds of a process that imports Roquette and makes its first client.

The best of the repeats, the interpreter's own start included; bytecode is kept in a folder of this run, as it is beside an
installed package.
"""

import argparse
import os
import subprocess
import sys
import tempfile

FIRST = "import roquette; roquette.Client('127.0.0.1:9876')"
STATEMENTS = {
    "nothing": "pass",
    "asyncio": "import asyncio",
    "asyncio, msgspec": "import asyncio, msgspec",
    "roquette": "import roquette",
    "roquette, a client": FIRST,
    "roquette, a blocking client": "import roquette; roquette.sync.Client('127.0.0.1:9876')",
}
TOLD = "; import sys, time; print(time.process_time(), len(sys.modules), sum(n.startswith('roquette') for n in sys.modules))"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            key: each for key, each in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
        }
        environ["PYTHONPYCACHEPREFIX"] = folder

        def told(code: str) -> tuple[float, int, int]:
            done = subprocess.run(
                [sys.executable, "-c", code + TOLD],
                capture_output=True,
                text=True,
                check=True,
                env=environ,
            )
            seconds, modules, ours = done.stdout.split()
            return float(seconds), int(modules), int(ours)

        for name, code in STATEMENTS.items():
            told(code)  # makes the bytecode
            seconds, modules, ours = min(told(code) for _ in range(repeats))
            print(f"{name:30} {seconds:.3f} s, {modules} modules, {ours} of ours")


if __name__ == "__main__":
    main()
