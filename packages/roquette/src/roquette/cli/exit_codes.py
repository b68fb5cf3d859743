"""Exit codes of the `roquette` command; `docs/reference/cli.md` has the same table."""

from typing import Final

FAILED: Final = 1
"""It was not done, or only in part: a server refused or does not answer, a file cannot be read."""

USAGE: Final = 2
"""The command line is wrong: no such command or option, or a value that it cannot have."""

UNHEALTHY: Final = 10
"""It was done, and what it looked at is not as it should be."""
