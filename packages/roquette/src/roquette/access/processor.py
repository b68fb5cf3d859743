"""The requests about users and their rules, 3001 to 3010, of brokers and name servers alike.

Apache: AdminBrokerProcessor, AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl; codes and texts are
theirs. The guard has asked for the right to the cluster before; here is what goes beyond it: super users are made and
changed by super users, nobody gives rights to itself, and no answer has a password.
"""

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from roquette.access import records
from roquette.access.guard import Account
from roquette.access.model import (
    AccessSettings,
    Acl,
    PolicyType,
    Resource,
    ResourceType,
    UserType,
    subject_of,
)
from roquette.access.records import check_name, denied, invalid, username_of
from roquette.access.users import State, Users
from roquette.base.executor import run_blocking
from roquette.errors import Refused, RemoteProtocolError
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, Task, row
from roquette.wire import headers
from roquette.wire.bodies.tables import AclInfo, UserInfo
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.json_body import decode_request_body, encode_body

B = TypeVar("B")
SUPER_ONLY = "The super user can only be update by super user"


class AccessProcessor:
    """Serves users and rules."""

    def __init__(self, settings: AccessSettings, users: Users) -> None:
        self._settings = settings
        self._users = users

    def rows(self, lane: int) -> list[Row]:
        """Return the rows that are served, in a lane of the server."""
        code, user, acl = RequestCode, headers.UserRequestHeader, headers.AclRequestHeader
        disk, nothing = Promise.FILE, Promise.NOTHING
        listed, rules = headers.ListUsersRequestHeader, headers.ListAclsRequestHeader
        return [
            row(code.AUTH_CREATE_USER, self.create_user, user, lane, disk),
            row(code.AUTH_UPDATE_USER, self.update_user, user, lane, disk),
            row(code.AUTH_DELETE_USER, self.delete_user, user, lane, disk),
            row(code.AUTH_GET_USER, self.get_user, user, lane, nothing),
            row(code.AUTH_LIST_USER, self.list_users, listed, lane, nothing),
            row(code.AUTH_CREATE_ACL, self.put_acl, acl, lane, disk),
            row(code.AUTH_UPDATE_ACL, self.put_acl, acl, lane, disk),
            row(code.AUTH_DELETE_ACL, self.delete_acl, headers.DeleteAclRequestHeader, lane, disk),
            row(code.AUTH_GET_ACL, self.get_acl, acl, lane, nothing),
            row(code.AUTH_LIST_ACL, self.list_acls, rules, lane, nothing),
        ]

    # Who asks

    def _actor(self, ctx: RequestContext) -> Account | None:
        """Return the account that changes something; None: nobody in particular, where requests are not signed.

        Raises:
            Refused: nobody who has signed, though a white list lets the request in; or where nobody has rights but
                super users, somebody else.
        """
        if not self._settings.authentication_enabled:
            return None
        actor = self._users.signer(ctx)
        if actor is None:
            raise denied("users and rules are changed by requests that are signed")
        if not actor.is_super and not self._settings.authorization_enabled:
            raise denied("users and rules are changed by super users, authorizationEnabled=false")
        return actor

    # Users

    def create_user(
        self, ctx: RequestContext, header: headers.UserRequestHeader, body: bytes
    ) -> Task:
        """AUTH_CREATE_USER."""
        name, info, actor = check_name(header.username), _decoded(UserInfo, body), self._actor(ctx)
        _supers_by_supers(info, actor, "The super user can only be create by super user")

        def change(state: State) -> State:
            user = records.changed(None, info, name)
            if name in state.users:
                raise denied("The user is existed")
            return state.with_user(user)

        return self._change(change)

    def update_user(
        self, ctx: RequestContext, header: headers.UserRequestHeader, body: bytes
    ) -> Task:
        """AUTH_UPDATE_USER."""
        name, info, actor = check_name(header.username), _decoded(UserInfo, body), self._actor(ctx)
        _supers_by_supers(info, actor, SUPER_ONLY)

        def change(state: State) -> State:
            old = state.users.get(name)
            if old is None:
                raise denied("The user is not exist")
            _not_of_a_super(state, name, actor)
            return state.with_user(records.changed(old, info, name))

        return self._change(change)

    def delete_user(
        self, ctx: RequestContext, header: headers.UserRequestHeader, body: bytes
    ) -> Task:
        """AUTH_DELETE_USER: its rules go as well."""
        name, actor = header.username, self._actor(ctx)
        if not name.strip():
            raise denied("username can not be blank")

        def change(state: State) -> State:
            _not_of_a_super(state, name, actor)
            return state.without_user(name)

        return self._change(change)

    def get_user(
        self, ctx: RequestContext, header: headers.UserRequestHeader, body: bytes
    ) -> Reply:
        """AUTH_GET_USER; no body: there is none."""
        if not header.username.strip():
            raise invalid("The username is blank")
        user = self._users.state.users.get(header.username)
        return Reply(b"", None if user is None else encode_body(records.user_info(user)))

    def list_users(
        self, ctx: RequestContext, header: headers.ListUsersRequestHeader, body: bytes
    ) -> Task:
        """AUTH_LIST_USER; no body: there is none."""
        users, part = self._users.state.users, header.filter

        def encoded() -> bytes:
            found = [
                records.user_info(user) for name, user in sorted(users.items()) if part in name
            ]
            return encode_body(found) if found else b""

        return Task(_answered(encoded))

    # Rules

    def put_acl(self, ctx: RequestContext, header: headers.AclRequestHeader, body: bytes) -> Task:
        """AUTH_CREATE_ACL and AUTH_UPDATE_ACL: Apache makes no difference."""
        info = _decoded(AclInfo, body)
        if not info.policies:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        name = username_of(info.subject or header.subject)
        if info.subject and header.subject and username_of(header.subject) != name:
            raise invalid("The subjects of header and body differ")
        self._not_its_own(ctx, name)
        acl = records.acl_of(info, subject_of(name))
        kinds = {entry.resource.kind for policy in acl.policies for entry in policy.entries}
        if ResourceType.NAMESPACE in kinds:  # a Deny would deny nothing
            words = "no request needs a right on a namespace: name its topics and groups, as Topic:<namespace>%*"
            raise invalid(words)

        def change(state: State) -> State:
            if name not in state.users:
                raise denied(f"The subject of {acl.subject} is not exist.")
            return state.with_acl(name, records.merged(state.acls.get(name), acl))

        return self._change(change)

    def delete_acl(
        self, ctx: RequestContext, header: headers.DeleteAclRequestHeader, body: bytes
    ) -> Task:
        """AUTH_DELETE_ACL. A resource that is none is refused: Apache removes all rules then."""
        name = username_of(header.subject)
        policy_type = records.policy_type_of(header.policy_type)
        resource = records.resource_of(header.resource) if header.resource else None
        self._not_its_own(ctx, name)

        def change(state: State) -> State:
            return state.with_acl(
                name, _without_resource(self._acl(state, name), policy_type, resource)
            )

        return self._change(change)

    def get_acl(self, ctx: RequestContext, header: headers.AclRequestHeader, body: bytes) -> Reply:
        """AUTH_GET_ACL; no body: nothing is said of the user."""
        name, state = username_of(header.subject), self._users.state
        if name not in state.users:
            raise denied("The subject is not exist.")
        acl = state.acls.get(name)
        return Reply(b"", None if acl is None else encode_body(records.acl_info(acl)))

    def list_acls(
        self, ctx: RequestContext, header: headers.ListAclsRequestHeader, body: bytes
    ) -> Task:
        """AUTH_LIST_ACL; no body: there is none."""
        acls = self._users.state.acls

        def encoded() -> bytes:
            found = [
                info
                for _, acl in sorted(acls.items())
                if header.subject_filter in acl.subject
                and (info := records.acl_info(acl, header.resource_filter)).policies
            ]
            return encode_body(found) if found else b""

        return Task(_answered(encoded))

    def _acl(self, state: State, name: str) -> Acl:
        if name not in state.users:
            raise denied("The subject is not exist.")
        acl = state.acls.get(name)
        if acl is None:
            raise denied("The acl is not exist.")
        return acl

    def _not_its_own(self, ctx: RequestContext, name: str) -> None:
        actor = self._actor(ctx)
        if actor is not None and not actor.is_super and actor.name == name:
            raise denied(f"User:{name} may not change its own rules")

    def _change(self, change: Callable[[State], State]) -> Task:
        async def done() -> Reply:
            await self._users.change(change)
            return Reply()

        return Task(done())


async def _answered(encode: Callable[[], bytes]) -> Reply:
    return Reply(b"", await run_blocking(partial(encode)))


def _supers_by_supers(info: UserInfo, actor: Account | None, words: str) -> None:
    if records.user_type_of(info) is UserType.SUPER and actor is not None and not actor.is_super:
        raise Refused(ResponseCode.SYSTEM_ERROR, words)


def _not_of_a_super(state: State, name: str, actor: Account | None) -> None:
    user = state.users.get(name)
    if user is not None and user.user_type is UserType.SUPER and actor and not actor.is_super:
        raise denied(SUPER_ONLY)


def _without_resource(acl: Acl, policy_type: PolicyType, resource: Resource | None) -> Acl | None:
    if resource is None:
        return None
    left = records.without(acl, policy_type, resource)
    return left if left.policies else None


def _decoded(kind: type[B], body: bytes) -> B:
    try:
        return decode_request_body(kind, body)
    except RemoteProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None


# Tickets for replication connections: those speak another protocol than requests, and cannot be signed.
# A replica asks for one by a signed request, and says it first on its connection: once, soon, and from where it asked.


LIFE_MS: Final = 30_000
MOST: Final = 1_000


class Tickets:
    """Those that were given and not yet said. Pure; times are steady ms."""

    def __init__(self) -> None:
        self._given: dict[
            str, tuple[str, int]
        ] = {}  # -> address, time it ends; in the order of these

    def give(self, ticket: str, ip: str, now_ms: int) -> str:
        """Note a new ticket for an address; of too many the oldest goes."""
        self._forget(now_ms)
        if len(self._given) >= MOST:
            del self._given[next(iter(self._given))]
        self._given[ticket] = ip, now_ms + LIFE_MS
        return ticket

    def expects(self, ip: str, now_ms: int) -> bool:
        """Return True if somebody at this address has a ticket that counts."""
        self._forget(now_ms)
        return any(holder_ip == ip for holder_ip, _ in self._given.values())

    def take(self, shown: str, ip: str, now_ms: int) -> bool:
        """Use up a ticket: True if it counts from this address; it does not a second time."""
        self._forget(now_ms)
        for ticket, (holder_ip, _) in self._given.items():
            if holder_ip == ip and hmac.compare_digest(ticket.encode(), shown.encode()):
                del self._given[ticket]
                return True
        return False

    def _forget(self, now_ms: int) -> None:
        while self._given:
            ticket = next(iter(self._given))
            if self._given[ticket][1] > now_ms:
                break
            del self._given[ticket]


# Answers that hold secrets: AES-GCM under a key of the asker's own secret, so that who only passes his request on learns nothing.


NONCE = 12


def seal(secret: bytes, request_text: str, nonce: bytes, words: bytes) -> bytes:
    """Return bytes that only a holder of the secret can read, as the answer to the request `request_text`.

    Args:
        nonce: 12 random bytes, of this answer alone.
    """
    # Imported here: only brokers with users and replicas need it, and it takes 20 ms of CPU.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return nonce + AESGCM(_key(secret)).encrypt(nonce, words, request_text.encode())


def unseal(secret: bytes, request_text: str, sealed: bytes) -> bytes:
    """The words; raises RemoteProtocolError: they were sealed with another secret, for another request, or not at all."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(secret)).decrypt(sealed[:NONCE], sealed[NONCE:], request_text.encode())
    except (InvalidTag, ValueError):
        words = (
            "the answer is not sealed with our secret, for this request: older versions do not seal"
        )
        raise RemoteProtocolError(words) from None


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"roquette-seal:1", "sha256")
