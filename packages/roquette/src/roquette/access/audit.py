"""Audit of what was permitted and refused to whom: lines of the logger `roquette.audit`.

A refusal is a warning; what changes something and was allowed is an info line; all else that was allowed is a debug
line. Lines of one user, request and reason are one in 10 s with a count. Values are quoted by `base/logs.py`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from roquette.access.model import Resource
from roquette.access.needs import Need, Needed
from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.wire.codes import RequestCode

log = logging.getLogger("roquette.audit")

SHOWN: Final = 4  # resources of one line
_NAMES: Final = {int(code): code.name for code in RequestCode}


class Audit:
    """Writes the audit lines of one server.

    Attributes:
        refusals: since the start, of those who are unproven, and of those whose right was denied.
    """

    def __init__(self, clock: Clock) -> None:
        self._lines = RateLimited(log, clock)
        self._unproven = RateLimited(
            log, clock
        )  # of its own: who makes names up hides no line of others
        self.refusals: dict[str, int] = {"unproven": 0, "denied": 0}

    def refused(self, user: str, code: int, resource: Resource | None, ip: str, why: str) -> None:
        """A proven user was not let do something."""
        self.refusals["denied"] += 1
        self._refused(self._lines, f"{user[:64]} {code} {why}", user, code, resource, ip, why)

    def unproven(self, user: str, code: int, ip: str, why: str) -> None:
        """Somebody was not let in; `user` is what he says, or empty: such lines are one in 10 s of an address and a reason."""
        self.refusals["unproven"] += 1
        self._refused(self._unproven, f"{ip} {why}", user, code, None, ip, why)

    def _refused(
        self,
        lines: RateLimited,
        key: str,
        user: str,
        code: int,
        resource: Resource | None,
        ip: str,
        why: str,
    ) -> None:
        lines.warning(
            key,
            "refused user=%s request=%s resource=%s ip=%s why=%s",
            user,
            _NAMES.get(code, code),
            "" if resource is None else resource,
            ip,
            why,
        )

    def shows(self, need: Need) -> bool:
        """Return True if a permitted request of this kind is a line."""
        return need.changes or log.isEnabledFor(logging.DEBUG)

    def allowed(
        self, user: str, code: int, need: Need, needed: Sequence[Needed] | None, ip: str
    ) -> None:
        """A proven user was let through; None for `needed` is a super user, who needs nothing."""
        if not self.shows(need):
            return
        what = "anything" if needed is None else _resource_list(needed)
        self._lines.line(
            logging.INFO if need.changes else logging.DEBUG,
            f"{user[:64]} {code} {what}",
            "allowed user=%s request=%s resource=%s ip=%s",
            user,
            _NAMES.get(code, code),
            what,
            ip,
        )


def _resource_list(needed: Sequence[Needed]) -> str:
    more = f" and {len(needed) - SHOWN} more" if len(needed) > SHOWN else ""
    return ",".join(str(resource) for resource, _ in needed[:SHOWN]) + more
