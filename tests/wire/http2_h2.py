"""`wire/http2.py` over the package h2, in Python throughout: what `wire/http2_ngh2.py` is checked by.

It takes more than ten times as long. Streams beyond the limit end the connection, as do more than 64 frames of one
header block; after a GOAWAY of the peer nothing more is said.
"""

from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from roquette.errors import RemoteProtocolError
from roquette.wire.http2 import (
    DATA,
    GONE,
    MOST_STREAMS,
    NO_ERROR,
    OPENED,
    PONG,
    Event,
    Fields,
    Flood,
    Http2Limits,
    without_gone_streams,
)

_Setting = h2.settings.SettingCodes
_OVER = (h2.exceptions.H2Error, KeyError)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_SIZE_ERROR = 6
MAX_FRAME = 16_384  # bytes of a payload, as in our settings: the least there may be
_DEFAULT_WINDOW = 65_535  # RFC 9113, section 6.9.2


class _Reply:
    """What is still to be sent on a stream: bytes, then perhaps trailers, then perhaps a reset."""

    __slots__ = ("data", "hushed", "trailers")

    def __init__(self) -> None:
        self.data = bytearray()
        self.trailers: Fields | None = None
        self.hushed = False


class H2Connection:
    """See `Http2`."""

    def __init__(self, limits: Http2Limits) -> None:
        self.opened = 0
        self.resets = 0
        self.last_stream = 0
        self._limits = limits
        self._replies: dict[int, _Reply] = {}
        self._notes = b""  # GOAWAY frames: h2 itself is finished when it has sent one
        self._last = MOST_STREAMS
        self._acknowledgements = 0  # that wait to be written
        self._over = False
        self._skip = len(_PREFACE)  # bytes to come before the next frame's head
        self._head = b""  # the part of it that has come, in earlier reads `_kept` bytes of it
        self._kept = 0
        conn = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        conn.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                _Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                _Setting.INITIAL_WINDOW_SIZE: limits.window,
                _Setting.MAX_HEADER_LIST_SIZE: limits.header_list,
            },
        )
        conn.decoder.max_header_list_size = limits.header_list
        conn.initiate_connection()
        if limits.connection_window > _DEFAULT_WINDOW:
            conn.increment_flow_control_window(limits.connection_window - _DEFAULT_WINDOW)
        self._conn: Any = conn

    def receive_data(self, data: bytes) -> list[Event]:
        """See `Http2`."""
        conn = self._conn
        try:
            self._measure(data)
            found = conn.receive_data(data)
        except RemoteProtocolError:
            self._over = True
            self.go_away(self.last_stream, _FRAME_SIZE_ERROR)
            raise
        except h2.exceptions.DenialOfServiceError as error:
            self._over = True
            raise Flood(str(error)) from None
        except _OVER as error:
            self._over = True
            raise RemoteProtocolError(str(error)) from None
        events: list[Event] = []
        for event in found:
            self._take(event, events)
        if self._acknowledgements > self._limits.acknowledgements:
            raise Flood("too many pings and settings")
        for stream in [stream for stream in self._replies if self._replies[stream].data]:
            self._push(stream)
        return without_gone_streams(events)

    def _measure(self, data: bytes) -> None:
        """Refuse a frame that is too long by its head: h2 waits until it has come whole."""
        pos, size = self._skip, len(data)
        while pos < size:
            self._head += data[pos : pos + 9 - len(self._head)]
            if len(self._head) < 9:
                pos = size
                break
            length = int.from_bytes(self._head[:3], "big")
            if length > MAX_FRAME:
                raise RemoteProtocolError(f"a frame of {length} bytes, {MAX_FRAME} are allowed")
            pos += 9 - self._kept + length
            self._kept = 0
            self._head = b""
        self._kept = len(self._head)
        self._skip = pos - size

    def _take(self, event: Any, events: list[Event]) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event, events)
        elif isinstance(event, h2.events.DataReceived):
            if event.flow_controlled_length:
                self._conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            ended = event.stream_ended is not None
            events.append((DATA, event.stream_id, event.data, ended))
        elif isinstance(event, h2.events.TrailersReceived):
            events.append((DATA, event.stream_id, b"", True))
        elif isinstance(event, h2.events.StreamReset):
            self.resets += event.remote_reset
            self._replies.pop(event.stream_id, None)
            events.append((GONE, event.stream_id, int(event.error_code), True))
        elif isinstance(event, h2.events.PingAckReceived):
            events.append((PONG, 0, event.ping_data, False))
        elif isinstance(event, h2.events.PingReceived):
            self._acknowledgements += 1
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self._acknowledgements += 1
            if len(event.changed_settings) > self._limits.settings:
                raise Flood("a SETTINGS frame with too many entries")
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._over = True

    def _begin(self, event: Any, events: list[Event]) -> None:
        stream = event.stream_id
        if stream > self._last:
            return  # as announced by GOAWAY
        self.opened += 1
        self.last_stream = stream
        if len(event.headers) > self._limits.headers:
            raise Flood("a request with too many fields")
        fields = tuple((bytes(name), bytes(value)) for name, value in event.headers)
        events.append((OPENED, stream, fields, event.stream_ended is not None))

    def respond(self, stream: int, fields: Fields, data: bytes, trailers: Fields) -> None:
        """See `Http2`."""
        self.send_headers(stream, fields)
        self.send_data(stream, data)
        self.send_trailers(stream, trailers)

    def send_headers(self, stream: int, fields: Fields, *, end: bool = False) -> None:
        """See `Http2`."""
        try:
            self._conn.send_headers(stream, fields, end_stream=end)
        except _OVER:
            return
        if not end:
            self._replies[stream] = _Reply()

    def send_data(self, stream: int, data: bytes) -> None:
        """See `Http2`."""
        reply = self._replies.get(stream)
        if reply is not None:
            reply.data += data
            self._push(stream)

    def send_trailers(self, stream: int, fields: Fields) -> None:
        """See `Http2`."""
        reply = self._replies.get(stream)
        if reply is not None:
            reply.trailers = fields
            self._push(stream)

    def _push(self, stream: int) -> None:
        """Send of a reply what the windows allow."""
        conn, reply = self._conn, self._replies[stream]
        try:
            while reply.data:
                room = min(
                    conn.local_flow_control_window(stream), conn.max_outbound_frame_size
                )  # fmt: skip
                if room <= 0:
                    return
                conn.send_data(stream, bytes(reply.data[:room]))
                del reply.data[:room]
            if reply.trailers is None:
                return
            if reply.trailers:
                conn.send_headers(stream, reply.trailers, end_stream=True)
            else:
                conn.end_stream(stream)
            if reply.hushed:
                conn.reset_stream(stream, NO_ERROR)
        except _OVER:
            pass
        del self._replies[stream]

    def hush(self, stream: int) -> None:
        """See `Http2`."""
        reply = self._replies.get(stream)
        if reply is not None:
            reply.hushed = True
        else:
            self.reset(stream, NO_ERROR)

    def reset(self, stream: int, code: int) -> None:
        """See `Http2`."""
        self._replies.pop(stream, None)
        try:
            self._conn.reset_stream(stream, code)
        except _OVER:
            return

    def ping(self) -> None:
        """See `Http2`."""
        try:
            self._conn.ping(b"roquette")
        except _OVER:
            return

    def go_away(self, last: int, code: int = NO_ERROR) -> None:
        """See `Http2`."""
        self._last = last
        self._notes += GoAwayFrame(0, last, code).serialize()

    def data_to_send(self) -> bytes:
        """See `Http2`."""
        self._acknowledgements = 0
        notes, self._notes = self._notes, b""
        data: bytes = self._conn.data_to_send()
        return data + notes

    def queued(self) -> int:
        """See `Http2`."""
        return sum(len(reply.data) for reply in self._replies.values())

    @property
    def over(self) -> bool:
        """See `Http2`."""
        if self._over:
            return True
        leaving = self._last != MOST_STREAMS
        return leaving and not self._replies and not self._conn.open_inbound_streams

    def ended_by(self) -> str:
        """See `Http2`: h2 raises every error."""
        return ""
