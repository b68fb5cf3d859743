"""Bounds of tables whose keys peers choose, and the text with which a full one refuses."""

import logging
from collections.abc import Callable

from roquette.errors import Refused


class Bound:
    """The bound of one table. Peers' new names are taken below `most`; what operators ask for, and more of a name
    that is known, below twice as many. Known names go on in any case.

    Args:
        what: what is counted, in the plural.
        most: the number, or where the setting is.
        remedy: what an operator can do.

    Attributes:
        refused: entries refused since the start.
    """

    __slots__ = ("_most", "refused", "remedy", "told", "what")

    def __init__(self, what: str, most: int | Callable[[], int], remedy: str) -> None:
        self.what = what
        self._most = most
        self.remedy = remedy
        self.refused = 0
        self.told = 0  # how many of these are logged

    @property
    def most(self) -> int:
        """The number as it is now."""
        return self._most if isinstance(self._most, int) else self._most()

    @most.setter
    def most(self, most: int) -> None:
        self._most = most

    def room(self, count: int, *, known: bool = False) -> bool:
        """Return True if one more fits beside `count`; count the one that does not."""
        fits = count < (2 * self.most if known else self.most)
        self.refused += not fits
        return fits

    def words(self) -> str:
        """Return why there is no room, and what to do."""
        return f"there is no room for more {self.what} than {self.most}: {self.remedy}"

    def check(self, count: int, code: int, what: str, *, known: bool = False) -> None:
        """Raise Refused unless one more fits; `what` says what is not done."""
        if not self.room(count, known=known):
            raise Refused(code, f"{what}: {self.words()}")


class TableBounds:
    """The bounds of a server's tables: the attributes of a subclass."""

    def all(self) -> list[Bound]:
        """Each of them."""
        return [bound for bound in vars(self).values() if isinstance(bound, Bound)]

    def refused(self) -> int:
        """Return the number of entries refused since the start."""
        return sum(bound.refused for bound in self.all())

    def shown(self) -> str:
        """For operators: what was refused since the start."""
        return " ".join(f"{b.what.replace(' ', '_')}={b.refused}" for b in self.all() if b.refused)

    def tell(self, log: logging.Logger) -> None:
        """On a beat: a line in the log for each table that has refused something since the last one."""
        for bound in self.all():
            count, bound.told = bound.refused - bound.told, bound.refused
            if count:
                log.warning("refused=%d of what=%s: %s", count, bound.what, bound.words())


def unbounded() -> Bound:
    """For a table without the bounds of a server."""
    return Bound("entries", 1 << 62, "")
