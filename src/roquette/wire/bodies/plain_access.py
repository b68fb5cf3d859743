"""ACL 1.0: what GET_BROKER_CLUSTER_ACL_CONFIG answers."""

import msgspec


class PlainAccessConfig(msgspec.Struct, rename="camel"):
    """An account as mqadmin shows it; the secret is never said."""

    access_key: str
    secret_key: str = "******"
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class GetBrokerClusterAclConfigResponseBody(msgspec.Struct, rename="camel"):
    """All accounts."""

    global_white_addrs: list[str]
    plain_access_configs: list[PlainAccessConfig]
