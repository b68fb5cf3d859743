"""Who asks, and may they: the one gate before every processor.

`Guard.check` knows neither generation of access control. It proves who asks (`Accounts`), takes what the request needs
from `needs.NEEDS`, and lets a `Judge` decide; the texts and codes of refusals are a `Refusals`. ACL 2.0 is
`access/policies.py` and `access/users.py`, ACL 1.0 `access/plain/`.
"""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from roquette.access.audit import Audit
from roquette.access.model import Action, Kind, Resource, topic_resource
from roquette.access.needs import NEEDS, Actions, Needed, Plain
from roquette.errors import Refused, RemoteProtocolError
from roquette.remoting.request import Peer, RequestContext
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import BadHeader
from roquette.wire.signature import ACCESS_KEY, SIGNATURE, ext_fields, signs

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
    """What a judge says, and why.

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
    """Who is known, and which addresses need prove nothing."""

    def find(self, access_key: str) -> Account | None:
        """The account of this name."""
        ...

    def trusts(self, ip: str, account: Account | None) -> bool:
        """Whether requests from `ip` are let through unproven: of anybody (None), or of those who name `account`.

        ACL 1.0's white lists of addresses; ACL 2.0 has none. Not asked of what needs an admin.
        """
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


class Refusals(Protocol):
    """What is answered to whom is not let in. No text holds a secret or a signature."""

    def nameless(self) -> Refused:
        """The request names no account."""
        ...

    def unknown(self, name: str) -> Refused:
        """There is no such account."""
        ...

    def disabled(self, name: str) -> Refused:
        """The account is switched off."""
        ...

    def unproven(self, name: str) -> Refused:
        """The signature is missing or wrong."""
        ...

    def denied(self, name: str, verdict: Verdict, code: int, ip: str) -> Refused:
        """The account may not do this; `code` is the request's."""
        ...

    def unreadable(self, name: str) -> Refused:
        """What the request needs cannot be read from it."""
        ...


class ApacheRefusals:
    """Codes and texts of Apache 5 (AuthenticationException and AuthorizationException on remoting)."""

    def nameless(self) -> Refused:
        """As the protocol says."""
        return Refused(NO_PERMISSION, "username cannot be null.")

    def unknown(self, name: str) -> Refused:
        """As the protocol says."""
        return Refused(NO_PERMISSION, f"User:{name} is not found.")

    def disabled(self, name: str) -> Refused:
        """As the protocol says."""
        return Refused(NO_PERMISSION, f"User:{name} is disabled.")

    def unproven(self, name: str) -> Refused:
        """As the protocol says."""
        return Refused(NO_PERMISSION, "check signature failed.")

    def denied(self, name: str, verdict: Verdict, code: int, ip: str) -> Refused:
        """As the protocol says."""
        return Refused(
            NO_PERMISSION,
            f"User:{name} has no permission to access {verdict.resource} from {ip}, {verdict.why}",
        )

    def unreadable(self, name: str) -> Refused:
        """As the protocol says."""
        return Refused(NO_PERMISSION, "parse authorization context error.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a guard guards.

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


Replays = Callable[[RequestContext, bytes, dict[str, str]], str]
"""Takes a request that a super user, as servers are, has signed, the secret and all its fields; says why it is not meant for
here, or "". """


class Guard:
    """Lets a request through, or raises `Refused`."""

    def __init__(
        self,
        accounts: Accounts,
        judge: Judge,
        scope: Scope,
        refusals: Refusals,
        audit: Audit,
        replays: Replays = lambda job, secret, fields: "",
    ) -> None:
        self._accounts = accounts
        self._replays = replays
        self._judge = judge
        self._refusals = refusals
        self._audit = audit
        self._cluster = Resource(Kind.CLUSTER, scope.cluster)
        self._authorize = scope.authorize
        self._unjudged = scope.unjudged
        self._open = scope.unproven & scope.unjudged if scope.authorize else scope.unproven

    def check(self, job: RequestContext, header: Any) -> None:
        """Once per request, before its processor: raises `Refused` where it is not let through."""
        command = job.command
        code = command.code
        if code in self._open:
            return
        ip = ip_of(job.peer)
        account = self._proven(job, ip)
        if account is None or not self._authorize or code in self._unjudged:
            return
        need = NEEDS.get(code)
        if account.is_super and need is not None:
            self._audit.allowed(account.name, code, need, None, ip)
            return
        if need is None:
            verdict = Verdict(False, "no rule says who may ask for this.", resource=self._cluster)
        else:
            try:
                needed = need.of(header, command.body, self._cluster)
            except RemoteProtocolError:
                self._audit.refused(account.name, code, None, ip, "the request is unreadable")
                raise self._refusals.unreadable(account.name) from None
            verdict = self._judge.judge(account, job, header, needed, ip)
            if verdict.allowed:
                self._audit.allowed(account.name, code, need, needed, ip)
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
        """Whether an account, proven by an earlier request, may do one of `actions` with a topic now."""
        ip = ip_of(peer)
        if not self._authorize or self._accounts.trusts(ip, None):
            return True
        account = self._accounts.find(name)
        if account is None or not account.enabled:
            return False
        needed = [(topic_resource(topic), actions)]
        return account.is_super or self._judge.judge(account, None, None, needed, ip).allowed

    def _refuse(self, account: Account, verdict: Verdict, code: int, ip: str) -> None:
        self._audit.refused(account.name, code, verdict.resource, ip, verdict.why)
        raise self._refusals.denied(account.name, verdict, code, ip)

    def _proven(self, job: RequestContext, ip: str) -> Account | None:
        """Who asks, proven by the request's signature; None for an address that is trusted unproven."""
        accounts, command = self._accounts, job.command
        code = command.code
        need = NEEDS.get(code)
        trusting = (
            need is not None and need.plain is not Plain.ADMIN
        )  # nobody administers by an address
        if trusting and accounts.trusts(ip, None):
            return None
        if job.account is not None:
            return self._known(job.account, code, ip)
        try:
            fields = ext_fields(command.ext)
        except BadHeader:
            fields = {}
        name = fields.get(ACCESS_KEY)
        if not name:
            self._audit.unproven("", code, ip, "no user is named")
            raise self._refusals.nameless()
        account = self._known(name, code, ip)
        if trusting and accounts.trusts(ip, account):
            return None
        given = fields.get(SIGNATURE, "")
        if command.version <= V4_9_3:
            fields.pop(UNIQUE_KEY_QUERY, None)
        if not signs(given, account.secret, fields, command.body):
            self._audit.unproven(name, code, ip, "the signature is wrong")
            raise self._refusals.unproven(name)
        if account.is_super and (why := self._replays(job, account.secret, fields)):
            self._audit.refused(name, code, None, ip, why)
            raise self._refusals.unproven(name)
        return account

    def _known(self, name: str, code: int, ip: str) -> Account:
        account = self._accounts.find(name)
        if account is None:
            self._audit.unproven(name, code, ip, "there is no such user")
            raise self._refusals.unknown(name)
        if not account.enabled:
            self._audit.unproven(name, code, ip, "the user is disabled")
            raise self._refusals.disabled(name)
        return account

    # Calls of another protocol; `code` is the request that stands for them.

    def unsigned(self, peer: Peer, code: int) -> None:
        """A call that names nobody: raises `Refused` unless `check` would let such a request through."""
        ip = ip_of(peer)
        if code not in self._open and not self._accounts.trusts(ip, None):
            self._audit.unproven("", code, ip, "no user is named")
            raise self._refusals.nameless()

    def prove(self, peer: Peer, code: int, name: str, given: str, content: bytes) -> str:
        """The account `name`, proven by an upper-case hexadecimal HMAC-SHA1 over `content`; raises `Refused`."""
        ip = ip_of(peer)
        account = self._known(name, code, ip)
        wanted = hmac.digest(account.secret, content, "sha1").hex().upper()
        if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            self._audit.unproven(name, code, ip, "the signature is wrong")
            raise self._refusals.unproven(name)
        return account.name

    def judge(self, name: str | None, peer: Peer, code: int, needed: list[Needed] | None) -> None:
        """Whether the account `name`, proven for this call, may do all of `needed`; raises `Refused`.

        Args:
            name: None: `unsigned` let it in. needed: None: no rule says what it needs.
        """
        ip = ip_of(peer)
        if code in self._open or self._accounts.trusts(ip, None):
            return
        if name is None:
            raise self._refusals.nameless()
        account = self._known(name, code, ip)
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


def ip_of(peer: Peer) -> str:
    """The address a peer connects from, without its port and brackets."""
    return peer.remote.rpartition(":")[0].strip("[]")
