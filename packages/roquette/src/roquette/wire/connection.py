"""The wire protocol of one TCP connection, without any I/O: bytes in, commands out, and back.

    length 4 | serialize type 1, header length 3 | header | body        (Apache: RemotingCommand.decode)

`length` counts everything after itself. One `WireConnection` serves either end: servers send requests too.
HOT: compiled by mypyc in the fast build.
"""

from typing import Final

import msgspec
from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64, u8

from roquette.base.digits import write_decimal
from roquette.base.javatypes import java_text
from roquette.errors import LocalProtocolError, RemoteProtocolError
from roquette.wire.binary_ext import json_of
from roquette.wire.codes import LANGUAGES
from roquette.wire.command import Command
from roquette.wire.general_head import general_head
from roquette.wire.plain_head import is_send, plain_head
from roquette.wire.send_fields import SendFields
from roquette.wire.signature import Signer

# The ROCKETMQ binary header (serialize type 1), read into the same Command as the JSON form. HOT.
# code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4, remark | ext length 4, ext ext: repeated (key length 2, key | value length 4, value) (Apache: RocketMQSerializable)


FIXED_SIZE: Final = 21
_quote = msgspec.json.Encoder().encode


def decode_binary_header(data: bytes, start: int, end: int) -> Command:
    """Read the header in data[start:end]; raises RemoteProtocolError when it is not one."""
    if end - start < FIXED_SIZE or end > len(data):
        raise RemoteProtocolError(
            f"a binary header of {end - start} bytes is shorter than {FIXED_SIZE}"
        )
    pos: i64 = start
    code: int = read_i16_be(data, pos)
    language = data[pos + 2]
    version: int = read_i16_be(data, pos + 3)
    opaque: int = read_i32_be(data, pos + 5)
    flag: int = read_i32_be(data, pos + 9)
    size: int = read_i32_be(data, pos + 13)
    pos += 17
    if size < 0 or pos + size + 4 > end:
        raise RemoteProtocolError("the remark is longer than its header")
    remark: str | None = java_text(data[pos : pos + size]) if size else None
    pos += size
    ext_size: int = read_i32_be(data, pos)
    pos += 4
    if ext_size < 0 or pos + ext_size > end:
        raise RemoteProtocolError("the ext fields are longer than their header")
    command = Command(
        code=code,
        opaque=opaque,
        flag=flag,
        version=version,
        language=LANGUAGES[language] if language < len(LANGUAGES) else None,
        remark=remark,
    )
    if is_send(code):
        fields = SendFields()
        if fields.read_binary(data, pos, pos + ext_size):
            command.packed = data[pos : pos + ext_size]
            fields.keep(command.packed)
            command.fields = fields
            return command
    command.ext = json_of(data, pos, pos + ext_size)
    return command


def encode_binary_header(
    *,
    code: int,
    opaque: int,
    flag: int,
    version: int,
    language: str,
    remark: str | None,
    ext: dict[str, str],
) -> bytes:
    """Write a header as Java does when `rocketmq.serialize.type` is ROCKETMQ."""
    writer = BytesWriter()
    write_i16_be(writer, code)
    writer.append(LANGUAGES.index(language))
    write_i16_be(writer, version)
    write_i32_be(writer, opaque)
    write_i32_be(writer, flag)
    text = (remark or "").encode()
    write_i32_be(writer, len(text))
    writer.write(text)
    fields = BytesWriter()
    for key, value in ext.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        write_i16_be(fields, len(key_bytes))
        fields.write(key_bytes)
        write_i32_be(fields, len(value_bytes))
        fields.write(value_bytes)
    packed = fields.getvalue()
    write_i32_be(writer, len(packed))
    writer.write(packed)
    return writer.getvalue()


MAX_FRAME: Final = 16_777_216  # com.rocketmq.remoting.frameMaxLength, the length field included
MAX_HEADER: Final = (
    512 << 10
)  # bytes: its fields are read one by one; Apache's has no bound but the frame's
MAX_PIECES: Final = (
    512  # of an unfinished frame: a peer that sends single bytes costs no more than the bytes
)
LARGE: Final = 4_096  # bytes of a body that is handed over as it is
MAX_REMARK: Final = 4_096  # characters of an answer's remark: it may repeat what the peer sent
HEAD_READ: Final = (
    65_536  # bytes of a header that are looked at to refuse its unfinished frame in words
)
NO_MEMORY: Final = "there is no memory for a frame with a header this large"
VERSION: Final = 513  # ordinal of V5_5_0 in Apache's MQVersion: what we claim to speak
_REQUEST: Final = b',"flag":0,"language":"PYTHON","opaque":'
_REPLY: Final = b',"flag":1,"language":"PYTHON","opaque":'
_ONE_WAY: Final = b',"flag":2,"language":"PYTHON","opaque":'
_END: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class Wire:
    """Wire on which a server answers and asks over one connection: what the dispatcher needs of a protocol. HOT."""

    __slots__ = ()

    def send_request(self, code: int, ext: bytes, body: bytes = b"", oneway: bool = False) -> int:
        """Queue a request and return its opaque. `ext` is the JSON object of the ext fields, or empty."""
        raise NotImplementedError

    def send_reply(
        self, opaque: int, code: int, remark: str | None, ext: bytes, body: bytes
    ) -> None:
        """Queue one response. `ext` is the JSON object of the ext fields, or empty.

        Raises:
            LocalProtocolError: it does not fit.
        """
        raise NotImplementedError

    def data_to_send(self) -> list[bytes]:
        """Return what is queued, for `transport.writelines`; the queue is empty afterwards."""
        raise NotImplementedError


class WireConnection(Wire):
    """Bytes in, commands out; commands in, bytes out. Symmetric, and free of clocks and sockets.

    Memory is bounded by one frame of `max_frame` bytes that has not arrived completely.

    Attributes:
        held: bytes of an unfinished frame that are kept; `needs`: its size (4 until its length is here).
        broken: the malformed frame that followed the commands of the last `receive_data`, or None.
        refused: requests whose frame was given up (`drop`, or no memory for it), without their bodies:
            the caller answers them and empties the list.
        signer: signs our requests, or None.
    """

    __slots__ = (
        "_chunks",
        "_max_frame",
        "_next_opaque",
        "_out",
        "_skip",
        "_text",
        "broken",
        "held",
        "needs",
        "refused",
        "signer",
    )

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.held: i64 = 0
        self.needs: i64 = 4
        self.broken: RemoteProtocolError | None = None
        self.refused: list[Command] = []
        self._chunks: list[bytes] = []  # an unfinished frame, in pieces: joined once, when complete
        self._skip: i64 = 0  # bytes to come of a frame that was given up
        self._out: list[bytes] = []
        self._text: BytesWriter | None = None  # what is queued behind `_out`
        self._next_opaque: int = 0
        self._max_frame: int = max_frame
        self.signer: Signer | None = None

    def receive_data(self, data: bytes) -> list[Command]:
        """Take what the peer sent and return the commands it completes, in order.

        Raises:
            RemoteProtocolError: a frame is oversized, or its header is not a command's. The commands before it
                are returned first: then `broken` is set, and the next call raises it.
        """
        if self.broken is not None:
            raise self.broken
        if self._skip:
            data = self._skipped(data)
        if self.held:
            self._chunks.append(data)
            self.held += len(data)
            if self.held < self.needs:
                if len(self._chunks) >= MAX_PIECES:
                    # Joined now and then only: to join at each read would copy a large frame again and again.
                    self._chunks = [b"".join(self._chunks)]
                return []
            data = self._joined(data)
        commands: list[Command] = []
        size: i64 = len(data)
        pos: i64 = 0
        limit: int = self._max_frame - 4
        self.needs = 4
        while size - pos >= 4:
            end: i64 = pos
            try:
                length: int = read_i32_be(data, pos)
                if length < 4 or length > limit:
                    raise RemoteProtocolError(f"frame length {length} is outside 4..{limit}")
                end = pos + 4 + length
                if end > size:
                    self.needs = end - pos
                    break
                commands.append(_decode_frame(data, pos, end))
            except RemoteProtocolError as error:
                # Commands that came whole before it are still served.
                if not commands and not self.refused:
                    raise
                self.broken = error
                return commands
            except MemoryError:
                if not self._refuse(data[pos : pos + 8 + HEAD_READ]):
                    self.broken = RemoteProtocolError(NO_MEMORY)
                    return commands
            pos = end
        if pos < size:
            rest = data[pos:] if pos else data
            self._chunks = [rest]
            self.held = len(rest)
        return commands

    def drop(self) -> bool:
        """Give up the unfinished frame: free what is held of it and skip what is to come of it.

        Its request goes to `refused`. False when its header is not here (or is huge): nobody can be answered.
        """
        head = b""
        for chunk in self._chunks:
            head += chunk[: 8 + HEAD_READ - len(head)]
        left: i64 = self.needs - self.held
        self._chunks = []
        self.held = 0
        self.needs = 4
        self._skip = left if left > 0 else 0
        return self._refuse(head)

    def _refuse(self, data: bytes) -> bool:
        """Enter the request of a frame that begins with `data`, as far as its header is there."""
        if len(data) < 8:
            return False
        word: int = read_i32_be(data, 4)
        end: i64 = 8 + (word & 0xFFFFFF)
        if end > len(data):
            return False
        try:
            self.refused.append(_decode_frame(data, 0, end))
        except RemoteProtocolError:
            return False
        return True

    def _joined(self, data: bytes) -> bytes:
        """All pieces as one, `data` being the last; without memory for it, what follows the frame."""
        beyond: i64 = self.held - self.needs
        try:
            whole = b"".join(self._chunks)
        except MemoryError:
            if not self.drop():
                self.broken = RemoteProtocolError(NO_MEMORY)
            return data[len(data) - beyond :] if beyond > 0 else b""
        self._chunks = []
        self.held = 0
        return whole

    def _skipped(self, data: bytes) -> bytes:
        """Return the part of `data` that does not belong to a frame that was given up."""
        skip: i64 = self._skip
        size: i64 = len(data)
        if size <= skip:
            self._skip = skip - size
            return b""
        self._skip = 0
        return data[skip:]

    def next_opaque(self) -> int:
        """A number for our next request: 31 bits, then from 0 again."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        return opaque

    def send_request(self, code: int, ext: bytes, body: bytes = b"", oneway: bool = False) -> int:
        """Queue a request and return its opaque. `ext` is the JSON object of the ext fields, or empty."""
        opaque = self.next_opaque()
        signer = self.signer
        if signer is not None:
            ext = signer.sign(ext, body, code)
        self._frame(code, ext, _ONE_WAY if oneway else _REQUEST, opaque, b"", body)
        return opaque

    def send_reply(
        self, opaque: int, code: int, remark: str | None, ext: bytes, body: bytes
    ) -> None:
        """Queue one response. `ext` is the JSON object of the ext fields, or empty."""
        if remark is None:
            self._frame(code, ext, _REPLY, opaque, b"", body)
        else:
            more = b',"remark":' + _quoted(remark)
            self._frame(code, ext or b"{}", _REPLY, opaque, more, body)

    def _frame(
        self, code: i64, ext: bytes, kind: bytes, opaque: i64, more: bytes, body: bytes
    ) -> None:
        """Queue a frame; `kind`, `more`: members as they are written."""
        text = self._text
        if text is None:
            text = self._text = BytesWriter()
        begin: i64 = len(text)
        whole = False
        try:
            write_i64_be(text, 0)  # its sizes, which are not known yet
            if code == 0 and ext:
                text.write(b'{"code":0,"extFields":')
                text.write(ext)
            else:
                text.write(b'{"code":')
                write_decimal(text, code)
                if ext:
                    text.write(b',"extFields":')
                    text.write(ext)
            text.write(kind)
            write_decimal(text, opaque)
            if more:
                text.write(more)
            text.write(_END)
            head: i64 = len(text) - begin - 8
            length: i64 = 4 + head + len(body)
            if length > self._max_frame - 4 or head > 0xFFFFFF:
                raise LocalProtocolError(
                    f"a frame of {length} bytes is larger than {self._max_frame - 4}"
                )
            _put_size(text, begin, length)
            _put_size(text, begin + 4, head)
            if len(body) < LARGE:
                if body:
                    text.write(body)
            else:
                self._out.append(text.getvalue())
                self._out.append(body)
                self._text = None
            whole = True
        finally:
            if not whole:  # nobody gets half of a frame
                text.truncate(begin)

    def data_to_send(self) -> list[bytes]:
        """Return what is queued, for `transport.writelines`; the queue is empty afterwards."""
        out = self._out
        if self._text is not None and len(self._text):
            out.append(self._text.getvalue())
            self._text = None
        self._out = []
        return out


def _put_size(text: BytesWriter, at: i64, size: i64) -> None:
    text[at] = u8(size >> 24)
    text[at + 1] = u8(size >> 16 & 0xFF)
    text[at + 2] = u8(size >> 8 & 0xFF)
    text[at + 3] = u8(size & 0xFF)


def _quoted(remark: str) -> bytes:
    """A remark as JSON, cut when it is longer than anybody reads.

    Half a surrogate pair, of a name that the peer gave, becomes `?` as in Java.
    """
    if len(remark) > MAX_REMARK:
        remark = f"{remark[:MAX_REMARK]}... ({len(remark)} characters)"
    try:
        return _quote(remark)
    except UnicodeEncodeError:
        return _quote(remark.encode("utf-8", "replace").decode())


def _decode_frame(data: bytes, pos: i64, end: i64) -> Command:
    word: int = read_i32_be(data, pos + 4)
    start: i64 = pos + 8
    body_start: i64 = start + (word & 0xFFFFFF)
    # The length has 24 bits of the word; its highest byte is the kind.
    if body_start > end:
        raise RemoteProtocolError("header is longer than its frame")
    large = body_start - start > MAX_HEADER
    kind: int = (word >> 24) & 0xFF
    if kind == 0 and not large:
        plain = plain_head(data, start, body_start)
        if plain is not None:
            plain.body = data[body_start:end]
            return plain
    if kind == 0:
        try:
            command = general_head(data[start:body_start])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"header is not a command: {error}") from None
        large = large and not command.flag & 1  # an answer to a batch names all its messages
    elif kind == 1 and large:
        pass
    elif kind == 1:
        command = decode_binary_header(data, start, body_start)
    else:
        raise RemoteProtocolError(f"serialize type {kind} is unknown")
    if large:
        raise RemoteProtocolError(
            f"a header of {body_start - start} bytes, {MAX_HEADER} are allowed"
        )
    command.body = data[body_start:end]
    return command
