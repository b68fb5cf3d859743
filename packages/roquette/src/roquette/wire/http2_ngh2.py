"""`wire/http2.py` over libnghttp2, by the package ngh2: its only importer."""

import contextlib
from typing import Final

import ngh2

from roquette.errors import RemoteProtocolError
from roquette.wire.http2 import (
    CHANGED,
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

_Data: Final = ngh2.DataReceived
_Request: Final = ngh2.RequestReceived
_Closed: Final = ngh2.StreamClosed
_Reset: Final = ngh2.StreamReset
_Trailers: Final = ngh2.TrailersReceived
_Pong: Final = ngh2.PingAcknowledged
_Settings: Final = ngh2.SettingsReceived


class NgConnection:
    __slots__ = ("_conn", "_hushed", "last_stream", "opened", "resets")

    def __init__(self, limits: Http2Limits) -> None:
        conn = ngh2.Connection(
            ngh2.Role.SERVER,
            ngh2.Configuration(
                max_outbound_ack=limits.acknowledgements,
                max_settings=limits.settings,
                max_continuations=limits.continuations,
                max_inbound_header_list_size=limits.header_list,
                max_inbound_header_count=limits.headers,
                stream_reset_rate_limit=(limits.resets, limits.resets_per_s),
            ),
        )
        conn.initiate_connection(
            {
                ngh2.Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                ngh2.Setting.INITIAL_WINDOW_SIZE: limits.window,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: limits.header_list,
            }
        )
        conn.set_local_window_size(limits.connection_window)
        self._conn = conn
        self._hushed: list[int] = []
        self.opened = 0
        self.resets = 0
        self.last_stream = 0

    def receive_data(self, data: bytes) -> list[Event]:
        conn = self._conn
        try:
            conn.receive_data(data)
            found = conn.events()
        except ngh2.DenialOfServiceError as error:
            raise Flood(str(error)) from None
        except ngh2.NGH2Error as error:
            raise RemoteProtocolError(str(error)) from None
        events: list[Event] = []
        gone = False
        for event in found:
            kind = type(event)
            if kind is _Request:
                self.opened += 1
                stream = self.last_stream = event.stream_id
                events.append((OPENED, stream, event.headers, event.end_stream))
            elif kind is _Data:
                events.append((DATA, event.stream_id, event.data, event.end_stream))
            elif kind is _Trailers:
                events.append((DATA, event.stream_id, b"", True))
            elif kind is _Reset:
                self.resets += 1
                # A peer may reset what it has sent in the same bytes: nobody is to begin with such a stream.
                gone = True
                events.append((GONE, event.stream_id, event.error_code, True))
            elif kind is _Closed:
                if event.error_code:
                    gone = True
                    events.append((GONE, event.stream_id, event.error_code, True))
            elif kind is _Pong:
                events.append((PONG, 0, event.opaque_data, False))
            elif kind is _Settings:
                events.append((CHANGED, 0, None, False))
        return without_gone_streams(events) if gone else events

    def respond(self, stream: int, fields: Fields, data: bytes, trailers: Fields) -> None:
        conn = self._conn
        try:
            conn.send_response(stream, fields)
            conn.send_data(stream, data)
            if trailers:
                conn.send_trailers(stream, trailers)
            else:
                conn.end_stream(stream)
        except ngh2.NGH2Error:  # the stream is over
            pass

    def send_headers(self, stream: int, fields: Fields, *, end: bool = False) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            self._conn.send_response(stream, fields, end_stream=end)

    def send_data(self, stream: int, data: bytes) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            self._conn.send_data(stream, data)

    def send_trailers(self, stream: int, fields: Fields) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            if fields:
                self._conn.send_trailers(stream, fields)
            else:
                self._conn.end_stream(stream)

    def hush(self, stream: int) -> None:
        self._hushed.append(stream)

    def reset(self, stream: int, code: int) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            self._conn.reset_stream(stream, code)

    def ping(self) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            self._conn.ping(b"roquette")

    def go_away(self, last: int, code: int = NO_ERROR) -> None:
        try:
            if last == MOST_STREAMS:
                self._conn.send_shutdown_notice()
            else:
                self._conn.send_goaway(code, last_stream_id=last)
        except ngh2.NGH2Error:  # the stream is over
            pass

    def data_to_send(self) -> bytes:
        try:
            out: bytes = self._conn.data_to_send()
            if self._hushed:
                out += self._hush()
        except ngh2.NGH2Error:
            return b""
        return out

    def _hush(self) -> bytes:
        waiting: list[int] = []
        for stream in self._hushed:
            try:
                if self._conn.queued_body_size(stream):
                    waiting.append(stream)
                else:
                    self._conn.reset_stream(stream, NO_ERROR)
            except ngh2.NGH2Error:  # the stream is over
                pass
        self._hushed = waiting
        out: bytes = self._conn.data_to_send()
        return out

    def queued(self) -> int:
        try:
            waiting: int = self._conn.queued_body_size()
        except ngh2.NGH2Error:
            return 0
        return waiting

    @property
    def over(self) -> bool:
        try:
            return not self._conn.want_read and not self._conn.want_write
        except ngh2.NGH2Error:
            return True  # it was broken by the peer

    def ended_by(self) -> str:
        try:
            found = self._conn.events()
        except ngh2.NGH2Error:
            return ""
        for event in found:
            if type(event) is ngh2.ConnectionClosed and event.error_code:
                text = (
                    event.debug_data.decode("latin-1")
                    or "too many resets, or a field that cannot be read"
                )
                return f"{text} (HTTP/2 error {event.error_code})"
        return ""
