"""Users and rules of one server: in memory, and in `users.json` and `acls.json`, which nobody else may read.

Passwords stand there in clear: they are the keys that sign, and whoever checks a signature must have the key. A change
counts when it is on the disk, or not at all; changes are made one after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from roquette.access.guard import Account
from roquette.access.model import Acl, User, UserStatus, UserType, subject_of
from roquette.access.policies import PolicyTable
from roquette.access.records import (
    acl_info,
    acl_of,
    changed,
    kept_users,
    rules_in,
    username_of,
)
from roquette.base import generations
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.errors import ConfigError, Refused, RemoteProtocolError, StoreError
from roquette.remoting.request import RequestContext
from roquette.wire.bodies.tables import AclInfo, UserInfo
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import decode_body, fastjson_pretty
from roquette.wire.signature import ACCESS_KEY, SIGNATURE, ext_fields, signed_content, signs

log = logging.getLogger("roquette.access")

MOST_USERS: Final = 10_000
MOST_RULES: Final = 50_000  # of all users: they go to a replica in one answer
USERS: Final = "users.json"
ACLS: Final = "acls.json"


class AccessTables(msgspec.Struct):
    """Content of users.json, acls.json and of the answer to a replica."""

    users: list[UserInfo] = []
    acls: list[AclInfo] = []


class State(msgspec.Struct, frozen=True):
    """Users by name, and their rules by their names. Never changed: a change makes another one."""

    users: dict[str, User] = {}
    acls: dict[str, Acl] = {}

    def with_user(self, user: User) -> "State":
        """One user more, or another one of its name. Raises Refused: there are too many."""
        if user.username not in self.users and len(self.users) >= MOST_USERS:
            raise Refused(ResponseCode.NO_PERMISSION, f"There are {MOST_USERS} users already")
        return State({**self.users, user.username: user}, self.acls)

    def with_acl(self, name: str, acl: Acl | None) -> "State":
        """Other rules of a user, or none."""
        acls = {each: old for each, old in self.acls.items() if each != name}
        if acl is not None:
            acls[name] = acl
            if sum(map(rules_in, acls.values())) > MOST_RULES:
                words = f"There are more than {MOST_RULES} rules of all users"
                raise Refused(ResponseCode.NO_PERMISSION, words)
        return State(self.users, acls)

    def without_user(self, name: str) -> "State":
        """Without a user and its rules."""
        users = {each: user for each, user in self.users.items() if each != name}
        return State(users, self.with_acl(name, None).acls)

    def kept(self) -> AccessTables:
        """As files have it."""
        return AccessTables(
            kept_users(self.users.values()), [acl_info(acl) for acl in self.acls.values()]
        )


def state_of(kept: AccessTables) -> State:
    """Read the state from what files or a master say. Raises Refused: it is none."""
    if len(kept.users) > MOST_USERS or len(kept.acls) > MOST_USERS:
        raise Refused(ResponseCode.NO_PERMISSION, f"There are more than {MOST_USERS} users")
    users = {info.username or "": changed(None, info, info.username or "") for info in kept.users}
    acls: dict[str, Acl] = {}
    for info in kept.acls:
        name = username_of(info.subject or "")
        acls[name] = acl_of(info, subject_of(name))
    if sum(map(rules_in, acls.values())) > MOST_RULES:
        raise Refused(ResponseCode.NO_PERMISSION, f"There are more than {MOST_RULES} rules")
    return State(users, acls)


class Users:
    """The accounts of ACL 2.0, and the rules that `policies` judges by.

    Attributes:
        version: grows with each change.
    """

    def __init__(self, files: Files, directory: str, policies: PolicyTable) -> None:
        self.version = 0
        self.state = State()
        self._files = files
        self._directory = directory
        self._policies = policies
        self._accounts: dict[str, Account] = {}
        self._changing = asyncio.Lock()

    # `guard.Accounts`

    def find(self, access_key: str) -> Account | None:
        """The account of a name."""
        return self._accounts.get(access_key)

    def signer(self, job: RequestContext) -> Account | None:
        """Return the account that signed a request; None: nobody that is known here. Asked whether or not a guard has looked."""
        command = job.command
        fields = ext_fields(command.ext)
        account = self._accounts.get(fields.get(ACCESS_KEY, ""))
        if account is None or not account.enabled:
            return None
        given = fields.get(SIGNATURE, "")
        content = signed_content(fields, command.body)
        return account if signs(given, account.secret, content) else None

    # Files

    def load(self) -> None:
        """Read the files. Blocks.

        Raises:
            StoreError: there are files, and they cannot be read: without them nobody could log in, or everybody.
        """
        parts = [
            generations.load(self._files, f"{self._directory}/{name}", _parse)
            for name in (USERS, ACLS)
        ]
        users, acls = (AccessTables() if part is None else part.value for part in parts)
        self._publish(state_of(AccessTables(users.users, acls.acls)))

    async def change(self, make: Callable[[State], State]) -> None:
        """Make another state of the present one, bring it to the disk, and let it count.

        Raises:
            Refused: by `make`, or the disk does not take it; then nothing has changed here, and what the disk has
                counts after a restart.
        """
        async with self._changing:
            state = make(self.state)
            try:
                await run_blocking(partial(self._write, self.state, state))
            except OSError as error:
                log.error("users and rules not written error=%s", error)
                words = f"not changed: users and rules cannot be written ({error})"
                raise Refused(ResponseCode.SYSTEM_ERROR, words) from None
            self._publish(state)

    def _write(self, old: State, new: State) -> None:
        kept = new.kept()
        if new.acls != old.acls:  # first: a user who comes again finds no rules of the one before
            self._save(ACLS, AccessTables(acls=kept.acls))
        if new.users != old.users:
            self._save(USERS, AccessTables(users=kept.users))

    def _save(self, name: str, kept: AccessTables) -> None:
        part = {"users": kept.users} if name == USERS else {"acls": kept.acls}
        data = fastjson_pretty(part)
        generations.save(self._files, f"{self._directory}/{name}", data, private=True)

    def _publish(self, state: State) -> None:
        before = self.state.acls
        for name, acl in state.acls.items():
            if before.get(name) is not acl:
                self._policies.put(acl)
        for name in before.keys() - state.acls.keys():
            self._policies.remove(name)
        self.state = state
        self._accounts = {user.username: _account(user) for user in state.users.values()}
        self.version += 1

    async def finish(self) -> None:
        """Return when no change is under way."""
        async with self._changing:
            pass

    # Starts and replicas

    async def add_first(self, users: Iterable[User]) -> None:
        """Users that the settings name, where there are none of their names.

        Raises:
            ConfigError: they cannot be written.
        """
        for user in users:
            known = self.state.users.get(user.username)
            if known is None:
                try:
                    await self.change(partial(_with, user))
                except Refused as error:
                    raise ConfigError(f"user {user.username!r}: {error.remark}") from None
                log.info("super user made as the settings say user=%s", user.username)
            elif known.password != user.password:
                log.warning(
                    "user=%s is known with another password than the settings have: the known one counts "
                    "(mqadmin updateUser, or remove it from %s)",
                    user.username,
                    USERS,
                )

    async def follow(self, kept: AccessTables) -> None:
        """Make users and rules those of a master. Raises Refused: they are none, or cannot be written."""
        state = await run_blocking(state_of, kept)
        if state != self.state:
            await self.change(lambda old: state)

    def supers(self) -> list[str]:
        """Names of the users that are asked for no right."""
        users = self.state.users.values()
        return sorted(user.username for user in users if user.user_type is UserType.SUPER)


def _with(user: User, state: State) -> State:
    return state.with_user(user)


def _parse(data: bytes) -> AccessTables:
    kept = decode_body(AccessTables, data)
    try:
        state_of(kept)
    except Refused as error:
        raise StoreError(error.remark) from None
    return kept


def decode_kept(data: bytes) -> AccessTables:
    """Decode a master's answer; raises RemoteProtocolError."""
    if not data:
        raise RemoteProtocolError("no users in the answer")
    return decode_body(AccessTables, data)


def _account(user: User) -> Account:
    enabled = user.user_status is UserStatus.ENABLE
    is_super = user.user_type is UserType.SUPER
    return Account(user.username, user.password.encode(), is_super, enabled)
