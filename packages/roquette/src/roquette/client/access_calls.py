"""The requests about users and what they may do, 3001 to 3010, as values: as `client.calls`."""

from roquette.client.calls import Call, body_of, nothing
from roquette.wire.bodies.access import AclInfo, UserInfo
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from roquette.wire.json_body import decode_body, encode_body


def create_user(user: UserInfo) -> Call[None]:
    """Add a user; refused when there is one of its name."""
    header = UserRequestHeader(username=user.username or "")
    return Call(RequestCode.AUTH_CREATE_USER, nothing, header, encode_body(user))


def update_user(user: UserInfo) -> Call[None]:
    """Change a user: what is None stays as it is."""
    header = UserRequestHeader(username=user.username or "")
    return Call(RequestCode.AUTH_UPDATE_USER, nothing, header, encode_body(user))


def delete_user(username: str) -> Call[None]:
    """Remove a user and its rules; one that is not there is fine."""
    return Call(RequestCode.AUTH_DELETE_USER, nothing, UserRequestHeader(username=username))


def get_user(username: str) -> Call[UserInfo | None]:
    """One user, None when there is none. Servers of ours leave its password out."""

    def read(answer: Command) -> UserInfo | None:
        return body_of(UserInfo)(answer) if answer.body else None

    return Call(RequestCode.AUTH_GET_USER, read, UserRequestHeader(username=username))


def list_users(part: str = "") -> Call[list[UserInfo]]:
    """The users whose names have `part` in them."""

    def read(answer: Command) -> list[UserInfo]:
        return decode_body(list[UserInfo], answer.body) if answer.body else []

    return Call(RequestCode.AUTH_LIST_USER, read, ListUsersRequestHeader(filter=part))


def create_acl(acl: AclInfo) -> Call[None]:
    """Add rules to a subject; a rule for the same resource is replaced."""
    header = AclRequestHeader(subject=acl.subject or "")
    return Call(RequestCode.AUTH_CREATE_ACL, nothing, header, encode_body(acl))


def update_acl(acl: AclInfo) -> Call[None]:
    """The same: servers make no difference."""
    header = AclRequestHeader(subject=acl.subject or "")
    return Call(RequestCode.AUTH_UPDATE_ACL, nothing, header, encode_body(acl))


def delete_acl(subject: str, resource: str = "", policy_type: str = "") -> Call[None]:
    """Remove the rule for a resource, all of the subject's without one."""
    header = DeleteAclRequestHeader(subject=subject, resource=resource, policy_type=policy_type)
    return Call(RequestCode.AUTH_DELETE_ACL, nothing, header)


def get_acl(subject: str) -> Call[AclInfo | None]:
    """Ask what a subject may do; None when nothing is said of it."""

    def read(answer: Command) -> AclInfo | None:
        return body_of(AclInfo)(answer) if answer.body else None

    return Call(RequestCode.AUTH_GET_ACL, read, AclRequestHeader(subject=subject))


def list_acls(subject: str = "", resource: str = "") -> Call[list[AclInfo]]:
    """Rules, of subjects and for resources that have these parts in them."""

    def read(answer: Command) -> list[AclInfo]:
        return decode_body(list[AclInfo], answer.body) if answer.body else []

    header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    return Call(RequestCode.AUTH_LIST_ACL, read, header)
