"""What requests 50, 51 and 53 do to a document of ACL 1.0. Errors are Apache's texts, without the secrets in them."""

from collections.abc import Callable
from typing import Any, Final

from roquette.access.plain.policy import DENY, PERMS, SHORTEST_KEY, perm_of
from roquette.access.plain.yaml_text import plain_value, read_yaml, write_yaml
from roquette.errors import ConfigError
from roquette.wire.headers.plain_access import CreateAccessConfigRequestHeader

ACCOUNTS: Final = "accounts"
WHITE: Final = "globalWhiteRemoteAddresses"
VERSION: Final = "dataVersion"

Document = dict[str, Any]


def changed(
    path: str, data: bytes | None, change: Callable[[Document], Document], now_ms: int
) -> bytes:
    """The new content of a file, its data version counted up. Comments are lost, as in Apache's.

    Raises:
        ConfigError: the file as it is, or as it would be, cannot be read.
    """
    document = plain_value(read_yaml(data, path)) if data is not None else None
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"{path} is no policy file")
    document = change(document or {})
    versions = document.get(VERSION)
    counter = versions[0].get("counter") if isinstance(versions, list) and versions else 0
    counter = counter if isinstance(counter, int) else 0
    document[VERSION] = [{"counter": counter + 1, "timestamp": now_ms}]
    return write_yaml(document)


def put_account(document: Document, given: CreateAccessConfigRequestHeader) -> Document:
    """UPDATE_AND_CREATE_ACL_CONFIG: what is not given stays as it is, but for `admin`."""
    for name, text in (("accessKey", given.access_key), ("secretKey", given.secret_key)):
        if text is None or len(text) < SHORTEST_KEY:
            raise ConfigError(f"The {name} cannot be null and length should longer than 6")
    lists = {"topicPerms": given.topic_perms, "groupPerms": given.group_perms}
    fields: Document = {
        "accessKey": given.access_key,
        "secretKey": given.secret_key,
        "whiteRemoteAddress": given.white_remote_address,
        "admin": given.admin,
        "defaultTopicPerm": given.default_topic_perm or None,
        "defaultGroupPerm": given.default_group_perm or None,
        **{name: None if text is None else _perms(text) for name, text in lists.items()},
    }
    accounts = _accounts(document)
    before = next((one for one in accounts if one.get("accessKey") == given.access_key), {})
    kept = [one for one in accounts if one is not before]
    merged = before | {name: value for name, value in fields.items() if value is not None}
    return document | {ACCOUNTS: [*kept, merged]}


def _accounts(document: Document) -> list[Document]:
    accounts = document.get(ACCOUNTS) or []
    for one in accounts:
        one["accessKey"] = str(one.get("accessKey"))  # YAML's number is a text to Apache
    return list(accounts)


def _perms(text: str) -> list[str]:
    found = [word for word in text.split(",") if word.strip()]
    for word in found:
        parts = [part for part in word.split("=") if part]
        if len(parts) != 2:
            raise ConfigError(
                f"Parse Resource format error for {word[:80]}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if perm_of(parts[1]) == DENY and parts[1].strip() not in PERMS:
            raise ConfigError(
                f"Parse resource permission error for {word[:80]}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
    return found


def without_account(document: Document, access_key: str) -> Document:
    """DELETE_ACL_CONFIG."""
    kept = [one for one in _accounts(document) if one.get("accessKey") != access_key]
    return document | {ACCOUNTS: kept}


def with_white(document: Document, addresses: list[str]) -> Document:
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
    return document | {WHITE: addresses}
