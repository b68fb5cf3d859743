"""Guard of the processors, the one gate before each: proves who asks, and judges whether they may.

`Guard.check` proves who asks (`Accounts`: `access/users.py`), takes what the request needs from `needs.NEEDS`, and lets a
`Judge` decide (`access/policies.py`). Codes and texts of refusals are those of Apache 5.
"""

import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from roquette.access.model import Action, Actions, Needed, Resource, ResourceType, topic_resource
from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.errors import Refused, RemoteProtocolError
from roquette.remoting.request import Peer, RequestContext
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import BadHeader
from roquette.wire.signature import (
    ACCESS_KEY,
    SIGNATURE,
    SignedNames,
    ext_fields,
    more_names,
    signed_content,
    signs,
)

if TYPE_CHECKING:
    from roquette.access.needs import Need

# Audit of what was permitted and refused to whom: lines of the logger `roquette.audit`.
# A refusal is a warning; what changes something and was allowed is an info line; all else that was allowed is a debug line. Lines of one user, request and reason are one in 10 s with a count. Values are quoted by `base/logs.py`.


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

    def shows(self, need: "Need") -> bool:
        """Return True if a permitted request of this kind is a line."""
        return need.changes or log.isEnabledFor(logging.DEBUG)

    def allowed(
        self, user: str, code: int, need: "Need", needed: Sequence[Needed] | None, ip: str
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


NO_PERMISSION: Final = int(ResponseCode.NO_PERMISSION)
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
V4_9_3: Final = 399  # MQVersion: clients up to it do not sign UNIQUE_KEY_QUERY


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody who can prove who they are.

    Attributes:
        name: the access key. secret: what signs. is_super: asked for no policy. enabled: refused when not.
    """

    name: str
    secret: bytes = field(repr=False)
    is_super: bool = False
    enabled: bool = True


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Judgement of a request, and the reason.

    Attributes:
        why: Apache's words after "from <ip>, ". rule: the entry that decided, or "".
        resource, actions: what was not allowed, where it was not.
    """

    allowed: bool
    why: str = ""
    rule: str = ""
    resource: Resource | None = None
    actions: tuple[Action, ...] = ()


class Accounts(Protocol):
    """Accounts that are known."""

    def find(self, access_key: str) -> Account | None:
        """The account of this name."""
        ...


class Judge(Protocol):
    """Decides what a proven account may do."""

    def judge(
        self,
        account: Account,
        job: RequestContext | None,
        header: Any,
        needs: Sequence[Needed],
        ip: str,
    ) -> Verdict:
        """All of `needs` must be allowed; the verdict names the first that is not."""
        ...

    def knows(self, name: str, code: int, cache_key: object, ip: str) -> bool:
        """Return True if `remember` was told that an account may do this, and nothing has changed since."""
        ...

    def remember(self, name: str, code: int, cache_key: object, ip: str) -> None:
        """The account `name` may do what a request `code` of this `Need.cache_key` asks for, from `ip`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Kinds of requests that a guard lets through unasked, or only to some.

    Attributes:
        cluster: the name of the server's cluster: requests that concern the whole of it need a right on it.
        authorize: off, whoever is proven may do everything (authenticationEnabled without authorizationEnabled).
        unproven: request codes nobody is asked a proof for (authenticationWhitelist).
        unjudged: request codes nobody is asked a right for (authorizationWhitelist).
    """

    cluster: str
    authorize: bool = True
    unproven: frozenset[int] = frozenset()
    unjudged: frozenset[int] = frozenset()


Replays = Callable[[RequestContext, bytes, bytes], str]
"""Takes a request that a super user, as servers are, has signed, the secret and what is signed; says why it is not meant for
here, or "". """


class Guard:
    """Lets a request through, or raises `Refused`."""

    def __init__(
        self,
        accounts: Accounts,
        judge: Judge,
        scope: Scope,
        audit: Audit,
        replays: Replays = lambda *_: "",
    ) -> None:
        from roquette.access.needs import NEEDS  # open servers have no guard

        self._accounts = accounts
        self._replays = replays
        self._needs = NEEDS
        self._judge = judge
        self._audit = audit
        self._names: dict[int, SignedNames | None] = {}  # of proven requests, by code
        self._cluster = Resource(ResourceType.CLUSTER, scope.cluster)
        self._authorize = scope.authorize
        self._unjudged = scope.unjudged
        self._open = scope.unproven & scope.unjudged if scope.authorize else scope.unproven

    def check(self, job: RequestContext, header: Any) -> None:
        """Once per request, before its processor: raises `Refused` where it is not let through."""
        command = job.command
        code = command.code
        if code in self._open:
            return
        ip = job.peer.ip
        # The proof comes first: a code that nobody is asked a right for still needs its signature.
        account = self._proven(job, ip)
        if not self._authorize or code in self._unjudged:
            return
        need = self._needs.get(code)
        # A code without a rule is refused to super users as well.
        if account.is_super and need is not None:
            self._audit.allowed(account.name, code, need, None, ip)
            return
        cache_key = None
        if need is None:
            verdict = Verdict(False, "no rule says who may ask for this.", resource=self._cluster)
        else:
            cache_key = need.cache_key and need.cache_key(header)
            if cache_key is not None and self._judge.knows(account.name, code, cache_key, ip):
                return
            try:
                needed = need.of(header, command.body, self._cluster)
            except RemoteProtocolError:
                self._audit.refused(account.name, code, None, ip, "the request is unreadable")
                raise _refusal("parse authorization context error.") from None
            verdict = self._judge.judge(account, job, header, needed, ip)
            if verdict.allowed:
                self._audit.allowed(account.name, code, need, needed, ip)
                # What is let through from memory leaves no line, so only what leaves none is remembered.
                if cache_key is not None and not self._audit.shows(need):
                    self._judge.remember(account.name, code, cache_key, ip)
                if need.touches:
                    job.may_touch = partial(self._check_topic, account, job, need.touches, ip)
                return
        self._refuse(account, verdict, code, ip)

    def _check_topic(
        self, account: Account, job: RequestContext, actions: Actions, ip: str, topic: str
    ) -> None:
        """`RequestContext.may_touch` of a request that was let through."""
        needed = [(topic_resource(topic), actions)]
        verdict = self._judge.judge(account, job, job.header, needed, ip)
        if not verdict.allowed:
            self._refuse(account, verdict, job.command.code, ip)

    def permits(self, name: str, peer: Peer, topic: str, actions: tuple[Action, ...]) -> bool:
        """Return True if an account, proven by an earlier request, may do one of `actions` with a topic now."""
        ip = peer.ip
        if not self._authorize:
            return True
        account = self._accounts.find(name)
        if account is None or not account.enabled:
            return False
        needed = [(topic_resource(topic), actions)]
        return account.is_super or self._judge.judge(account, None, None, needed, ip).allowed

    def _refuse(self, account: Account, verdict: Verdict, code: int, ip: str) -> None:
        self._audit.refused(account.name, code, verdict.resource, ip, verdict.why)
        what = f"{verdict.resource} from {ip}, {verdict.why}"
        raise _refusal(f"User:{account.name} has no permission to access {what}")

    def _proven(self, job: RequestContext, ip: str) -> Account:
        """Return the account that asks, proven by the request's signature."""
        command = job.command
        code = command.code
        if job.account is not None:
            return self._enabled_account(job.account, code, ip)
        names = self._names.get(code) if command.version > V4_9_3 else None
        fields = names and names.read(command.ext, command.body)
        name, given, content = fields or self._read(command)
        if not name:
            self._audit.unproven("", code, ip, "no user is named")
            raise _nameless()
        account = self._enabled_account(name, code, ip)
        if not signs(given, account.secret, content):
            self._audit.unproven(name, code, ip, "the signature is wrong")
            raise _unproven()
        if account.is_super and (why := self._replays(job, account.secret, content)):
            self._audit.refused(name, code, None, ip, why)
            raise _unproven()
        if fields is None and command.version > V4_9_3 and code in self._needs:
            # only who is proven says what names there are
            self._names[code] = more_names(names, ext_fields(command.ext))
        return account

    def _read(self, command: Command) -> tuple[str, str, bytes]:
        """`SignedNames.read` of any fields."""
        try:
            fields = ext_fields(command.ext)
        except BadHeader:
            return "", "", b""
        if command.version <= V4_9_3:
            fields.pop(UNIQUE_KEY_QUERY, None)
        content = signed_content(fields, command.body)
        return fields.get(ACCESS_KEY, ""), fields.get(SIGNATURE, ""), content

    def _enabled_account(self, name: str, code: int, ip: str) -> Account:
        account = self._accounts.find(name)
        if account is None:
            self._audit.unproven(name, code, ip, "there is no such user")
            raise _refusal(f"User:{name} is not found.")
        if not account.enabled:
            self._audit.unproven(name, code, ip, "the user is disabled")
            raise _refusal(f"User:{name} is disabled.")
        return account

    # Calls of another protocol; `code` is the request that stands for them.

    def unsigned(self, peer: Peer, code: int) -> None:
        """A call that names nobody: raises `Refused` unless `check` would let such a request through."""
        ip = peer.ip
        if code not in self._open:
            self._audit.unproven("", code, ip, "no user is named")
            raise _nameless()

    def prove(self, peer: Peer, code: int, name: str, given: str, content: bytes) -> str:
        """The account `name`, proven by an upper-case hexadecimal HMAC-SHA1 over `content`; raises `Refused`."""
        ip = peer.ip
        account = self._enabled_account(name, code, ip)
        wanted = hmac.digest(account.secret, content, "sha1").hex().upper()
        if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            self._audit.unproven(name, code, ip, "the signature is wrong")
            raise _unproven()
        return account.name

    def judge(self, name: str | None, peer: Peer, code: int, needed: list[Needed] | None) -> None:
        """Judge if the account `name`, proven for this call, may do all of `needed`; raises `Refused`.

        Args:
            name: None: `unsigned` let it in. needed: None: no rule says what it needs.
        """
        ip = peer.ip
        if code in self._open:
            return
        if name is None:
            raise _nameless()
        account = self._enabled_account(name, code, ip)
        if not self._authorize or code in self._unjudged:
            return
        if needed is None:
            verdict = Verdict(False, "no rule says who may ask for this.", resource=self._cluster)
        elif account.is_super or not needed:
            return
        else:
            verdict = self._judge.judge(account, None, None, needed, ip)
        if not verdict.allowed:
            self._refuse(account, verdict, code, ip)


def _refusal(text: str) -> Refused:
    return Refused(NO_PERMISSION, text)


def _nameless() -> Refused:
    return _refusal("username cannot be null.")


def _unproven() -> Refused:
    return _refusal("check signature failed.")
