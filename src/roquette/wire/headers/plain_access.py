"""ACL 1.0: 50, 51, 52, 53."""

import msgspec


class CreateAccessConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"CreateAccessConfigRequestHeader(access_key={self.access_key!r})"


class DeleteAccessConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
