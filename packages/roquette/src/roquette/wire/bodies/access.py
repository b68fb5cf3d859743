"""Users and access control lists, as operators write and read them."""

import msgspec


class UserInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """A user. `password` is its secret key: in requests only, and in no text made of this value.

    Attributes:
        user_type: Super or Normal. user_status: enable or disable. None leaves either as it is.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """One rule. resource: as `Topic:orders*`. source_ips: addresses or CIDRs. decision: Allow or Deny."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """Rules of one type: Custom, or Default, which counts where no Custom rule fits."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """Policies of one subject. subject: `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
