"""The requests about ACL 1.0, 50 to 54, as Apache 4.9 has them; an admin must have signed those that change something.

What is other than there: no answer and no error has a secret (54, CVE-2024-23321), and no request names a path: 53 takes
the names that 52 shows.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from roquette.access.plain.access import PlainAccess
from roquette.access.plain.documents import put_account, with_white, without_account
from roquette.access.plain.policy import PlainPolicy
from roquette.errors import ConfigError, Refused
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire import headers
from roquette.wire.bodies.data_version import DataVersion
from roquette.wire.bodies.plain_access import (
    GetBrokerClusterAclConfigResponseBody,
    PlainAccessConfig,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.json_body import encode_body

UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
WHITE_FAILED: Final = 211


class PlainProcessor:
    """Serves accounts and white lists.

    Args:
        access: None: aclEnable is false, and every request is refused.
        whose: the names of cluster and broker, and the broker's address.
    """

    def __init__(
        self, access: PlainAccess | None, whose: Callable[[], tuple[str, str, str]]
    ) -> None:
        self._access = access
        self._whose = whose

    def rows(self, lane: int) -> list[Row]:
        """What is served, in a lane of the server."""
        code, disk, nothing = RequestCode, Promise.FILE, Promise.NOTHING
        put, gone = headers.CreateAccessConfigRequestHeader, headers.DeleteAccessConfigRequestHeader
        white = headers.UpdateGlobalWhiteAddrsConfigRequestHeader
        return [
            row(code.UPDATE_AND_CREATE_ACL_CONFIG, self.put_account, put, lane, disk),
            row(code.DELETE_ACL_CONFIG, self.delete_account, gone, lane, disk),
            row(code.GET_BROKER_CLUSTER_ACL_INFO, self.show_versions, None, lane, nothing),
            row(code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self.set_white, white, lane, disk),
            row(code.GET_BROKER_CLUSTER_ACL_CONFIG, self.show_accounts, None, lane, nothing),
        ]

    def put_account(
        self, ctx: RequestContext, header: headers.CreateAccessConfigRequestHeader, body: bytes
    ) -> Task:
        """UPDATE_AND_CREATE_ACL_CONFIG: in the file where the account stands, a new one in plain_acl.yml."""
        access = self._on(UPDATE_FAILED)

        def choose(policy: PlainPolicy) -> str:
            found = policy.accounts.get(header.access_key)
            return access.files.path if found is None else found.path

        return _task(
            UPDATE_FAILED, access.change(choose, lambda document: put_account(document, header))
        )

    def delete_account(
        self, ctx: RequestContext, header: headers.DeleteAccessConfigRequestHeader, body: bytes
    ) -> Task:
        """DELETE_ACL_CONFIG."""
        access, name = self._on(DELETE_FAILED), header.access_key

        def choose(policy: PlainPolicy) -> str:
            found = policy.accounts.get(name)
            if found is None:
                raise ConfigError(
                    f"The accesskey[{name}] corresponding to accessConfig has been deleted failed."
                )
            return found.path

        return _task(
            DELETE_FAILED, access.change(choose, partial(without_account, access_key=name))
        )

    def set_white(
        self,
        ctx: RequestContext,
        header: headers.UpdateGlobalWhiteAddrsConfigRequestHeader,
        body: bytes,
    ) -> Task:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: of one file, whose name 52 shows; plain_acl.yml when none is given."""
        access = self._on(WHITE_FAILED)
        addresses = [word.strip() for word in header.global_white_addrs.split(",") if word.strip()]
        wanted = header.acl_file_full_path or access.files.shown(access.files.path)

        def choose(policy: PlainPolicy) -> str:
            for path in (access.files.path, *policy.versions):
                if wanted in (path, access.files.shown(path)):
                    return path
            raise ConfigError(
                f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed."
            )

        return _task(WHITE_FAILED, access.change(choose, partial(with_white, addresses=addresses)))

    def show_versions(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_CLUSTER_ACL_INFO: how often each file was changed by a request, and when last."""
        access = self._on(ResponseCode.SYSTEM_ERROR)
        files, versions = access.files, access.policy.versions
        cluster, name, address = self._whose()
        answer = headers.GetBrokerAclConfigResponseHeader(
            version=encode_body(versions.get(files.path, DataVersion())).decode(),
            all_acl_file_version=encode_body(
                {files.shown(path): version for path, version in versions.items()}
            ).decode(),
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
        )
        return Reply(encode_ext(answer))

    def show_accounts(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_CLUSTER_ACL_CONFIG: everything but the secrets."""
        policy = self._on(ResponseCode.SYSTEM_ERROR).policy
        found = [
            PlainAccessConfig(
                access_key=one.access_key,
                white_remote_address=",".join(one.white.texts) or None,
                admin=one.admin,
                default_topic_perm=one.default_topic_perm,
                default_group_perm=one.default_group_perm,
                topic_perms=list(one.topic_perms) or None,
                group_perms=list(one.group_perms) or None,
            )
            for one in policy.accounts.values()
        ]
        answer = GetBrokerClusterAclConfigResponseBody(list(policy.white.texts), found)
        return Reply(b"", encode_body(answer))

    def _on(self, code: int) -> PlainAccess:
        if self._access is None:
            raise Refused(code, "ACL 1.0 is off at this broker: aclEnable=false")
        return self._access


def _task(code: int, work: Coroutine[Any, Any, None]) -> Task:
    async def done() -> Reply:
        try:
            await work
        except ConfigError as error:
            raise Refused(code, str(error)) from None
        return Reply()

    return Task(done())
