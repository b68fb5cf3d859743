"""Users and what they may do: 3001 to 3010; tickets for replication connections: 13007."""

import msgspec


class UserRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of CREATE_USER, UPDATE_USER, DELETE_USER and GET_USER."""

    username: str = ""


class ListUsersRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """filter: part of the names that are asked for."""

    filter: str = ""


class AclRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of CREATE_ACL, UPDATE_ACL and GET_ACL. subject: `User:name`."""

    subject: str = ""


class DeleteAclRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Without a resource all that the subject has goes. policy_type: Custom unless it is given."""

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class ListAclsRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Parts of the subjects and of the resources that are asked for."""

    subject_filter: str = ""
    resource_filter: str = ""


class HaTicketRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """proves: the asker does not need to be told a ticket, he makes it of a challenge and his secret."""

    proves: bool = False


class HaTicketResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """ticket: to be said first on a replication connection; challenge: the ticket is made of it. Both empty: the master
    asks for none."""

    ticket: str = ""
    challenge: str = ""
