"""The two requests by which brokers reach the records of their groups (remoting/agreements.py asks them)."""

from roquette.errors import AgreementError, Refused
from roquette.nameserver.controller.register_file import (
    MOST_KEY,
    MOST_VALUE,
    TOO_LARGE,
    RegisterFile,
)
from roquette.nameserver.floor.core import NameServerLane
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import RequestContext, Row, row
from roquette.replication.agreement import Agreement
from roquette.replication.record import is_record_key
from roquette.wire import headers
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext

NO_CONTROLLER = "this name server keeps no records of groups: start it with --controller embedded, managed or etcd://..."

ALONE = (
    "this name server keeps the records of groups in a file of its own (controller=embedded): "
    "controllerAddr must name it alone"
)


def need(agreement: Agreement | None) -> Agreement:
    """The controller's; raises Refused when this name server is none."""
    if agreement is None:
        raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, NO_CONTROLLER)
    return agreement


class RegisterProcessor:
    """Serves `Agreement.get` and `Agreement.put_if`."""

    def __init__(self, agreement: Agreement | None) -> None:
        self._agreement = agreement

    def rows(self) -> list[Row]:
        """What is served."""
        h, lane = headers, NameServerLane.BROKERS
        return [
            row(R.GET_REGISTER, self.get, h.GetRegisterRequestHeader, lane, P.NOTHING),
            row(R.PUT_REGISTER_IF, self.put_if, h.PutRegisterIfRequestHeader, lane, P.FILE),
        ]

    def _asked(self, several: bool, key: str) -> Agreement:
        agreement = need(self._agreement)
        if not is_record_key(key):  # an etcd has more than ours, and this server's rights
            raise Refused(ResponseCode.INVALID_PARAMETER, f"key[{key[:80]}] is of no broker group")
        if several and isinstance(agreement, RegisterFile):  # each would elect a master of its own
            raise Refused(ResponseCode.SYSTEM_ERROR, ALONE)
        return agreement

    def get(
        self, ctx: RequestContext, header: headers.GetRegisterRequestHeader, body: bytes
    ) -> Task:
        """GET_REGISTER."""
        return Task(self._get(self._asked(header.several, header.key), header.key))

    async def _get(self, agreement: Agreement, key: str) -> Reply:
        try:
            stored = await agreement.get(key)
        except AgreementError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return _reply(stored.revision, stored.value)

    def put_if(
        self, ctx: RequestContext, header: headers.PutRegisterIfRequestHeader, body: bytes
    ) -> Task:
        """PUT_REGISTER_IF."""
        agreement = self._asked(header.several, header.key)
        if len(body) > MOST_VALUE or len(header.key) > MOST_KEY:
            raise Refused(ResponseCode.SYSTEM_ERROR, TOO_LARGE)
        return Task(self._put_if(agreement, header.key, header.revision, bytes(body)))

    async def _put_if(self, agreement: Agreement, key: str, revision: int, value: bytes) -> Reply:
        try:
            new = await agreement.put_if(key, revision, value)
        except (
            AgreementError
        ) as error:  # it may have been written: the caller reads what became of it
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return _reply(new or 0)


def _reply(revision: int, value: bytes = b"") -> Reply:
    return Reply(encode_ext(headers.RegisterResponseHeader(revision=revision)), value)
