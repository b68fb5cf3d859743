"""What the consumers have written so far, counted by flight number while they write."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

_HEAD = b'{"id":'


class ReceivedFlights:
    """Follows the consumers' files. A line that is cut off (its writer was killed) does not count."""

    def __init__(self, paths: list[Path], expected: int) -> None:
        self.seen = bytearray(expected + 1)  # by flight number
        self.rows = dict.fromkeys(paths, 0)
        self.distinct = 0
        self._done = dict.fromkeys(paths, 0)

    @property
    def duplicates(self) -> int:
        """Rows beyond the first of the same flight."""
        return sum(self.rows.values()) - self.distinct

    def update(self) -> None:
        """Read what was appended since the last call."""
        for path, done in self._done.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(done)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._done[path] = done + len(whole)
            for line in whole.splitlines():
                self.rows[path] += 1
                number = int(line[len(_HEAD) : line.index(b",")])
                if not self.seen[number]:
                    self.seen[number] = 1
                    self.distinct += 1

    def read_distinct(self) -> Iterator[dict[str, object]]:
        """Every flight once, parsed from the files."""
        seen = bytearray(len(self.seen))
        for path in self.rows:
            with path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        flight = msgspec.json.decode(line)
                        if not seen[flight["id"]]:
                            seen[flight["id"]] = 1
                            yield flight
