"""Access control of one server, made from its settings."""

import logging
from dataclasses import replace
from typing import Final

from roquette.access.guard import Audit, Guard, Scope
from roquette.access.model import AccessSettings, Action, codes_of, reachable
from roquette.access.policies import PolicyJudge, PolicyTable
from roquette.access.users import Users
from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.errors import ConfigError
from roquette.remoting.request import Peer, RequestContext
from roquette.remoting.settings import Protection
from roquette.wire.signature import ACCESS_KEY, MARK, Proofs, Prover, ext_fields

log = logging.getLogger("roquette.access")

_MARK: Final = MARK.encode()


class Access:
    """Access control of one server, and the credentials with which it calls others.

    Args:
        directory: of users.json and acls.json.
        cluster: of the server, unless the settings name another one.
        prover: of what it asks of other servers; None: it asks nothing.

    Attributes:
        guard: asked before each request; None: everybody may do everything.
        audit: who was refused.
        proofs: of the requests that other servers of ours have signed.
    """

    def __init__(
        self,
        settings: AccessSettings,
        files: Files,
        directory: str,
        clock: Clock,
        cluster: str,
        prover: Prover | None = None,
    ) -> None:
        self.settings = settings
        policies = PolicyTable()
        self.users = Users(files, directory, policies)
        self.proofs = Proofs()
        self._prover = prover
        self._clock = clock
        self.audit = Audit(clock)
        self.guard: Guard | None = None
        if settings.authentication_enabled:
            scope = Scope(
                cluster=settings.cluster_name or cluster,
                authorize=settings.authorization_enabled,
                unproven=codes_of(settings.authentication_whitelist),
                unjudged=codes_of(settings.authorization_whitelist),
            )
            judge = PolicyJudge(policies)
            self.guard = Guard(self.users, judge, scope, self.audit, self._replayed)

    def protect(self, protection: Protection) -> Protection:
        """The same with this guard, and with what signs the server's own calls."""
        check = protection.guard if self.guard is None else self.guard.check
        return replace(
            protection, guard=check, calls=self.settings.sign(protection.calls, self._prover)
        )

    def _replayed(self, job: RequestContext, secret: bytes, content: bytes) -> str:
        """`guard.Replays`: a request of a server of ours serves once, here, for what it was signed for."""
        if _MARK not in content:
            return ""
        command, now_ms, local = job.command, self._clock.now_ms(), job.peer.local
        fields = ext_fields(command.ext)
        return self.proofs.fault(secret, command.code, fields, command.body, now_ms, local)

    def account_of(self, job: RequestContext) -> str:
        """Return who signed a request that was let in; "" where nobody is asked."""
        if self.guard is None:
            return ""
        return job.account or ext_fields(job.command.ext).get(ACCESS_KEY, "")

    def permits(self, account: str, peer: Peer, topic: str, *actions: Action) -> bool:
        """Return True if the account of an earlier request (`account_of`) may do one of `actions` with a topic now."""
        return self.guard is None or self.guard.permits(account, peer, topic, actions)

    async def start(self, bind_address: str) -> None:
        """Read the files, make the users that the settings name, and say how open the server is.

        Raises:
            ConfigError: nobody could log in. StoreError: the files cannot be read.
        """
        settings, users = self.settings, self.users
        await run_blocking(users.load)
        await users.add_first(settings.first_users())
        if settings.authentication_enabled:
            if not users.state.users:
                raise ConfigError(
                    "authenticationEnabled=true, and there is no user: nobody could log in. Give the first one as "
                    "initAuthenticationUser in the config file"
                )
            if settings.credentials is None:
                log.warning(
                    "no innerClientAuthenticationCredentials: servers with authentication will refuse what this one "
                    "asks of them (registration, copies for replicas)"
                )
            log.info(
                "access control is on authorization=%s users=%d super=%s",
                settings.authorization_enabled,
                len(users.state.users),
                ",".join(users.supers()[:20]),
            )
        elif reachable(bind_address):
            log.warning(
                "no access control: everybody who reaches %s may do everything (docs/security.md)",
                bind_address or "this machine",
            )
