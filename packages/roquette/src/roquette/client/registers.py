"""Requests for the records of broker groups, at name servers that are controllers. Pure, as `client.calls`."""

from typing import NamedTuple

from roquette.client.calls import Call
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    GetRegisterRequestHeader,
    PutRegisterIfRequestHeader,
    RegisterResponseHeader,
)


class Register(NamedTuple):
    """Value and revision that stand under a key; revision 0: nothing does."""

    revision: int
    value: bytes


def register(key: str) -> Call[Register]:
    """Ask for what stands under a key; a name server that is no controller refuses."""

    def read(answer: Command) -> Register:
        return Register(_revision(answer), bytes(answer.body or b""))

    return Call(RequestCode.GET_REGISTER, read, GetRegisterRequestHeader(key=key))


def put_register_if(key: str, revision: int, value: bytes) -> Call[bool]:
    """Replace the content whose revision is this; whether it was. A call that fails may have been carried out."""
    header = PutRegisterIfRequestHeader(key=key, revision=revision)
    return Call(
        RequestCode.PUT_REGISTER_IF, lambda answer: _revision(answer) > 0, header, body=value
    )


def _revision(answer: Command) -> int:
    return decode_ext(RegisterResponseHeader, answer.ext).revision
