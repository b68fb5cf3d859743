"""ACL 1.0 at work: the policy of the files, read again when they change, as accounts and judge of the guard.

Decisions are those of Apache's PlainPermissionManager 4.9, with three differences, all towards less: a white list lets
nobody do what needs an admin; what Apache asks nothing for and 2.0's table calls an operator's act needs an admin; what
reads or writes one topic or group needs its PUB or SUB. Codes and texts of refusals are 4.9's.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from roquette.access.guard import Account, Verdict
from roquette.access.model import Action, Kind, Resource
from roquette.access.needs import Needed
from roquette.access.plain.documents import Document, changed
from roquette.access.plain.policy import PUB, SUB, PlainAccount, PlainPolicy, read_policy
from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.generations import save
from roquette.errors import ConfigError, Refused
from roquette.message.names import RETRY_PREFIX
from roquette.remoting.request import RequestContext
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.access")

LOOK_S: Final = 1.0  # Apache: 5
MAX_FILES: Final = 1_000
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
FILE_NAME: Final = "plain_acl.yml"
DIRECTORY_NAME: Final = "acl"

_CHANGING: Final = frozenset((Action.CREATE, Action.UPDATE, Action.DELETE))
_BITS: Final = {Action.PUB: PUB, Action.SUB: SUB}
_ALLOWED: Final = Verdict(True)
_NOBODY: Final = PlainPolicy({}, read_policy(()).white, {})

Contents = tuple[tuple[str, bytes], ...]
Change = Callable[[Document], Document]


class PlainFiles:
    """The files of ACL 1.0: one by its name, and all `*.yml` and `*.yaml` of a directory. All methods block."""

    def __init__(self, files: Files, path: str, directory: str) -> None:
        self._files = files
        self.path = path
        self.directory = directory

    def read(self) -> Contents:
        """(path, content) of all files there are.

        Raises:
            ConfigError: one cannot be read.
        """
        paths = [self.path] if self._files.exists(self.path) else []
        for name in self._files.list_dir(self.directory)[:MAX_FILES]:
            if name.endswith((".yml", ".yaml")) and f"{self.directory}/{name}" != self.path:
                paths.append(f"{self.directory}/{name}")
        try:
            return tuple((path, self._files.read_bytes(path)) for path in paths)
        except OSError as error:
            raise ConfigError(
                f"{error.filename or self.path} cannot be read: {error.strerror}"
            ) from None

    def shown(self, path: str) -> str:
        """The name of a file in answers: no directory of the machine."""
        inside = path.removeprefix(f"{self.directory}/")
        return path.rpartition("/")[2] if inside == path else f"{DIRECTORY_NAME}/{inside}"

    def write(self, path: str, data: bytes) -> None:
        """Replace one; earlier contents stay beside it, and nobody else may read them."""
        save(self._files, path, data, private=True)


class PlainAccess:
    """The accounts and rights of ACL 1.0: `Accounts` and `Judge` of a Guard."""

    def __init__(self, files: PlainFiles, clock: Clock) -> None:
        self.files = files
        self.policy = _NOBODY
        self._clock = clock
        self._contents: Contents = ()
        self._seen: Contents | None = (
            None  # other contents than those in force, when they were last looked at
        )
        self._said = ""
        self._changing = asyncio.Lock()

    # The files

    def load(self) -> None:
        """Read the files at the start. Blocks.

        Raises:
            ConfigError: there is none, or one cannot be read.
        """
        contents = self.files.read()
        if not contents:
            raise ConfigError(
                f"aclEnable=true, and there is neither {self.files.path} nor a *.yml in {self.files.directory}: nobody "
                "could do anything. Write one, with an account that is 'admin: true', or say where it is (aclFile)"
            )
        self._take(contents, read_policy(contents))

    async def look(self) -> None:
        """Read the files again; what has changed, and stands still, counts from now on."""
        async with self._changing:
            try:
                contents = await run_blocking(self.files.read)
                if contents == self._contents:
                    self._seen = None
                elif contents != self._seen:
                    self._seen = contents  # somebody may be writing: it is looked at once more
                else:
                    self._take(contents, await run_blocking(_readable, contents))
                    self._seen = None
            except ConfigError as error:
                self._contents_refused(error)

    def _contents_refused(self, error: ConfigError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            log.error("ACL files are not taken, those read before count on: %s", error)
        if self._seen is not None:
            self._contents, self._seen = self._seen, None  # not read again until they change

    def _take(self, contents: Contents, policy: PlainPolicy) -> None:
        self._contents, self.policy, self._said = contents, policy, ""
        for note in policy.notes:
            log.warning("ACL files: %s", note)
        admins = sum(account.admin for account in policy.accounts.values())
        log.info(
            "ACL files are read files=%d accounts=%d admins=%d white_addresses=%d",
            len(contents),
            len(policy.accounts),
            admins,
            len(policy.white.texts),
        )
        if not admins:
            log.warning(
                "ACL files have no admin account: no request can change topics, groups or accounts"
            )

    async def change(self, choose: Callable[[PlainPolicy], str], change: Change) -> None:
        """Change one file by a request; on return it is on the disk and counts.

        Args:
            choose: the file's path. change: its document to the new one, in a worker thread.

        Raises:
            ConfigError: the new one could not be read, or cannot be written. Refused: by `choose` or `change`.
        """
        async with self._changing:
            path = choose(self.policy)
            now_ms = self._clock.now_ms()
            step = partial(self._rewritten, path, change, now_ms)
            try:
                self._take(*await run_blocking(step))
            except OSError as error:
                shown = self.files.shown(path)
                raise ConfigError(
                    f"not changed: {shown} cannot be written: {error.strerror}"
                ) from None
            except ConfigError as error:
                raise ConfigError(str(error).replace(path, self.files.shown(path))) from None
            self._seen = None

    def _rewritten(self, path: str, change: Change, now_ms: int) -> tuple[Contents, PlainPolicy]:
        contents = dict(self.files.read())
        data = changed(path, contents.get(path), change, now_ms)
        contents[path] = data
        policy = _readable(tuple(contents.items()))
        self.files.write(path, data)
        return tuple(contents.items()), policy

    # Accounts

    def find(self, access_key: str) -> Account | None:
        """The account of this name. An admin for whom no perms are written may do everything."""
        found = self.policy.accounts.get(access_key)
        if found is None:
            return None
        return Account(found.access_key, found.secret, found.admin and not found.perms)

    def trusts(self, ip: str, account: Account | None) -> bool:
        """Whether an address stands in the global white list, or in that of an account."""
        if account is None:
            return self.policy.white.has(ip)
        found = self.policy.accounts.get(account.name)
        return found is not None and found.white.has(ip)

    # Judge

    def judge(
        self,
        account: Account,
        job: RequestContext | None,
        header: Any,
        needs: Sequence[Needed],
        ip: str,
    ) -> Verdict:
        """Whether an account may do all of `needs`."""
        found = self.policy.accounts.get(account.name)
        if found is None:
            return Verdict(False, "there is no such account")
        for resource, actions in needs:
            if _CHANGING.issuperset(actions):
                if not found.admin:
                    return Verdict(False, "it needs an admin", "admin: false", None, actions)
            elif _lacks(found, resource, actions):
                return Verdict(False, "no default permission", "", resource, actions)
        return _ALLOWED


def _readable(contents: Contents) -> PlainPolicy:
    if not any(data.strip() for _, data in contents):
        raise ConfigError(
            "there is nothing in them: to let nobody in, stop the broker or leave one account"
        )
    return read_policy(contents)


def _lacks(account: PlainAccount, resource: Resource, actions: Sequence[Action]) -> bool:
    perm = 0
    for action in actions:
        perm |= _BITS.get(action, 0)
    if not perm or resource.kind not in (Kind.TOPIC, Kind.GROUP):
        return False  # what only shows: any account may
    if resource.kind is Kind.GROUP:
        return account.lacks(RETRY_PREFIX + resource.name, SUB)  # a retry topic is its group's
    if resource.name == TRACE_TOPIC and perm & PUB:
        return False
    return account.lacks(resource.name, perm)


class PlainRefusals:
    """Codes and texts of Apache 4.9: its AclException in a system error."""

    def nameless(self) -> Refused:
        """The request names no account."""
        return _refused("No accessKey is configured")

    def unknown(self, name: str) -> Refused:
        """There is no such account."""
        return _refused(f"No acl config for {name}")

    def disabled(self, name: str) -> Refused:
        """Not in ACL 1.0."""
        return self.unknown(name)

    def unproven(self, name: str) -> Refused:
        """The signature is missing or wrong."""
        return _refused(f"Check signature failed for accessKey={name}")

    def denied(self, name: str, verdict: Verdict, code: int, ip: str) -> Refused:
        """The account may not do this."""
        resource = verdict.resource
        if resource is None:
            return _refused(
                f"Need admin permission for request code={code}, but accessKey={name} is not"
            )
        if resource.kind in (Kind.TOPIC, Kind.GROUP):
            kind = "group" if resource.kind is Kind.GROUP else "topic"
            return _refused(f"No default permission for {kind}:{resource.name}")
        return _refused(verdict.why)

    def unreadable(self, name: str) -> Refused:
        """What the request needs cannot be read from it."""
        return _refused("the request's body cannot be read")


def _refused(text: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {text}"
    )
