"""Entry point of the `roquette` command: Ctrl-C is one word from the first import on."""

import contextlib
import os
import signal
import sys
from types import FrameType


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    """End: nothing is open yet. An exception may be lost in the callbacks of an import, or get another name."""
    with contextlib.suppress(OSError):
        os.write(2, b"stopped\n")
    os._exit(130)


def main() -> None:
    """Run the command line; exit code 130 after Ctrl-C, as shells have it."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _stop_at_once)
    try:
        from roquette.apps.main import main as run

        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
