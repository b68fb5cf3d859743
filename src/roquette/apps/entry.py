"""Where the `roquette` command begins: Ctrl-C is one word from the first import on."""

import sys


def main() -> None:
    """Run the command line; exit code 130 after Ctrl-C, as shells have it."""
    try:
        from roquette.apps.main import main as run

        run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
