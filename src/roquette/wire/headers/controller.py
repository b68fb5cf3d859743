"""What is asked of a controller: 1002, 1004 to 1006, 1011, and two of ours, 13001 and 13002."""

import msgspec

from roquette.wire.numbers import Int64


class GetRegisterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    key: str


class PutRegisterIfRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """The value is the body. revision: of the content to be replaced; 0: there is none."""

    key: str
    revision: Int64


class RegisterResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of GET_REGISTER: what stands there, the value in the body; 0: nothing does. Of PUT_REGISTER_IF: the new
    revision; 0: the content is another one."""

    revision: Int64
