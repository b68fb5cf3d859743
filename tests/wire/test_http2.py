"""The HTTP/2 seam over both libraries: replies, windows, every limit, and that both say the same."""

from random import Random
from typing import Any

import ngh2
import pytest
from tests.wire.http2_pair import END, OK, PREFACE, REQUEST, Pair, block, frame, frames

from roquette.errors import RemoteProtocolError
from roquette.wire.http2 import (
    CHANGED,
    DATA,
    GONE,
    MOST_STREAMS,
    OPENED,
    PONG,
    Event,
    Flood,
    Http2Limits,
    Rate,
)

PING, SETTINGS, RST, GOAWAY, HEADERS, CONTINUATION = 6, 4, 3, 7, 1, 9


@pytest.fixture(params=["ngh2", "h2"])
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def body(events: list[Event], stream: int) -> bytes:
    return b"".join(what for kind, of, what, _ in events if kind == DATA and of == stream)


def test_a_request_and_its_reply(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.client.send_data(stream, b"hello", end_stream=True)
    opened, data = pair.up()
    assert opened == (OPENED, stream, REQUEST, False)
    assert data == (DATA, stream, b"hello", True)
    pair.server.respond(stream, OK, b"world", END)
    got = pair.down()
    assert [type(event).__name__ for event in got[:3]] == [
        "ResponseReceived", "DataReceived", "TrailersReceived",
    ]  # fmt: skip
    assert got[1].data == b"world" and got[2].headers == END


def test_a_reply_without_a_body_and_one_without_trailers(library: str) -> None:
    pair = Pair(library)
    one, two = (pair.client.send_request(REQUEST, end_stream=True) for _ in range(2))
    pair.up()
    pair.server.send_headers(one, OK, end=True)
    pair.server.respond(two, OK, b"text", ())
    got = pair.down()
    assert [type(event).__name__ for event in got if event.stream_id == one] == [
        "ResponseReceived", "StreamClosed",
    ]  # fmt: skip
    ends = [event.end_stream for event in got if isinstance(event, ngh2.DataReceived)]
    assert ends[-1] or not any(isinstance(event, ngh2.TrailersReceived) for event in got)


@pytest.mark.parametrize("window", [1_000, 65_535, 1 << 20])
def test_a_reply_of_1_mib_comes_whole_through_a_smaller_window(library: str, window: int) -> None:
    pair = Pair(library, settings={ngh2.Setting.INITIAL_WINDOW_SIZE: window})
    stream = pair.client.send_request(REQUEST, end_stream=True)
    pair.up()
    pair.server.respond(stream, OK, bytes(1 << 20), END)
    assert pair.server.queued() == 1 << 20 or library == "h2"
    got, most, trailers = 0, 0, False
    while not trailers:
        data = pair.server.data_to_send()
        assert data
        most = max(most, sum(len(payload) for kind, _, _, payload in frames(data) if kind == 0))
        pair.client.receive_data(data)
        for event in pair.client.events():
            got += len(event.data) if isinstance(event, ngh2.DataReceived) else 0
            trailers = trailers or isinstance(event, ngh2.TrailersReceived)
        pair.up()
    assert got == 1 << 20 and most <= min(window, 65_535)
    assert pair.server.queued() == 0


def test_a_body_of_4_mib_is_not_held_up_by_our_windows(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.client.send_data(stream, bytes(4 << 20), end_stream=True)
    rounds, got, ended = 0, 0, False
    while not ended:
        events, _ = pair.swap()
        got += len(body(events, stream))
        ended = any(event[3] for event in events)
        rounds += 1
    assert got == 4 << 20 and rounds <= 9


def test_our_windows_are_those_of_the_limits(library: str) -> None:
    pair = Pair(library)
    assert pair.client.remote_window_size == 4 << 20
    stream = pair.client.send_request(REQUEST)
    pair.swap()
    assert pair.client.stream_remote_window_size(stream) == 1 << 20
    settings = pair.client.remote_settings
    assert settings[ngh2.Setting.MAX_CONCURRENT_STREAMS] == 4_096
    assert settings[ngh2.Setting.MAX_HEADER_LIST_SIZE] == 16_384


def test_both_speak_before_the_client_has_ended(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.client.send_data(stream, b"a")
    assert body(pair.up(), stream) == b"a"
    pair.server.send_headers(stream, OK)
    pair.server.send_data(stream, b"b")
    assert [type(event).__name__ for event in pair.down()] == ["ResponseReceived", "DataReceived"]
    pair.client.send_data(stream, b"c")
    assert body(pair.up(), stream) == b"c"
    pair.client.end_stream(stream)
    assert pair.up()[-1][3]
    pair.server.send_trailers(stream, END)
    assert any(isinstance(event, ngh2.TrailersReceived) for event in pair.down())


def test_a_client_that_has_its_reply_is_hushed_when_that_is_written(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.up()
    pair.server.respond(stream, OK, bytes(100_000), END)
    pair.server.hush(stream)
    names: list[str] = []
    for _ in range(5):
        names += [type(event).__name__ for event in pair.down()]
        pair.up()
    assert names.count("TrailersReceived") == 1
    assert names.index("StreamReset") > names.index("TrailersReceived")


def test_a_cancelled_request_is_gone_and_a_late_answer_is_dropped(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST, end_stream=True)
    pair.up()
    pair.client.reset_stream(stream)
    assert {event[:3] for event in pair.up()} == {(GONE, stream, 8)}
    pair.server.respond(stream, OK, b"late", END)
    pair.server.send_headers(stream, OK)
    pair.server.send_data(stream, b"late")
    pair.server.send_trailers(stream, END)
    pair.server.hush(stream)
    pair.server.reset(stream, 8)
    told = {type(event).__name__ for event in pair.down()}
    assert told <= {"StreamClosed"}, "the client closes it by itself"
    assert not pair.server.over and pair.server.queued() == 0


def test_we_may_reset(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.up()
    pair.server.reset(stream, 8)
    assert pair.down()[0].error_code == 8


def test_pings_both_ways(library: str) -> None:
    pair = Pair(library)
    pair.client.ping(b"12345678")
    pair.up()
    assert [event.opaque_data for event in pair.down()] == [b"12345678"]
    pair.server.ping()
    pair.down()
    assert [event[0] for event in pair.up()] == [PONG]


def test_a_graceful_end(library: str) -> None:
    pair = Pair(library)
    one = pair.client.send_request(REQUEST, end_stream=True)
    pair.up()
    pair.server.go_away(MOST_STREAMS)
    assert [event.last_stream_id for event in pair.down()] == [MOST_STREAMS]
    assert not pair.server.over
    pair.server.go_away(pair.server.last_stream)
    last = pair.server.data_to_send()
    data = frame(HEADERS, 5, one + 2, block())
    assert pair.up(data) == [], "it is not served"
    pair.server.respond(one, OK, b"x", END)
    assert [kind for kind, _, _, _ in frames(last)] == [GOAWAY]
    names = [type(event).__name__ for event in pair.down()]
    assert "TrailersReceived" in names
    if library == "ngh2":
        assert pair.server.over


# -- limits ---------------------------------------------------------------------------------------------------------


def test_what_is_reset_in_the_same_read_never_comes_up(library: str) -> None:
    pair = Pair(library)
    data = b"".join(
        frame(HEADERS, 4, stream, block())
        + frame(0, 0, stream, b"abc")
        + frame(RST, 0, stream, bytes((0, 0, 0, 8)))
        for stream in range(1, 401, 2)
    )
    events = pair.up(data + frame(HEADERS, 5, 401, block()))
    assert [event[:2] for event in events] == [(OPENED, 401)]
    assert (pair.server.opened, pair.server.resets) == (201, 200)


def test_what_came_of_an_older_stream_before_its_reset_does_not_either(library: str) -> None:
    pair = Pair(library)
    stream = pair.client.send_request(REQUEST)
    pair.up()
    reset = frame(RST, 0, stream, bytes((0, 0, 0, 8)))
    events = pair.up(frame(0, 1, stream, b"abc") + reset)
    assert {event[0] for event in events} == {GONE}


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
def test_rapid_resets_end_the_connection() -> None:
    pair = Pair("ngh2", Http2Limits(resets=100, resets_per_s=1))
    data = b"".join(
        frame(HEADERS, 4, stream, block()) + frame(RST, 0, stream, bytes((0, 0, 0, 8)))
        for stream in range(1, 601, 2)
    )
    assert pair.up(data) == []
    assert any(kind == GOAWAY for kind, _, _, _ in frames(pair.server.data_to_send()))
    assert pair.server.over


def test_a_rate_has_a_burst_and_a_pace() -> None:
    rate = Rate(10, 2)
    assert rate.take(10, 100.0) and not rate.take(11, 100.0)
    assert rate.take(11, 101.0)
    assert not rate.take(30, 102.0)
    rate = Rate(10, 2)
    assert rate.take(0, 1_000_000.0) and rate.take(10, 1_000_000.0)
    assert not rate.take(21, 1_000_060.0), "no more than the burst is saved"


def test_streams_beyond_the_limit_are_refused_or_end_the_connection(library: str) -> None:
    pair = Pair(library, Http2Limits(streams=10))
    data = b"".join(frame(HEADERS, 5, stream, block()) for stream in range(1, 41, 2))
    try:
        events = pair.up(data)
    except RemoteProtocolError:
        events = []
    assert len(events) <= 10
    answers = frames(pair.server.data_to_send())
    assert any(kind in (GOAWAY, RST) for kind, _, _, _ in answers)


def test_a_header_list_beyond_the_limit(library: str) -> None:
    pair = Pair(library, Http2Limits(header_list=4_096))
    many = block(REQUEST + tuple((b"x-%d" % i, b"y" * 500) for i in range(10)))
    with pytest.raises(Flood):
        pair.up(frame(HEADERS, 5, 1, many))


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
def test_too_many_fields(library: str) -> None:
    pair = Pair(library, Http2Limits(headers=20))
    many = block(REQUEST + tuple((b"x-%d" % i, b"y") for i in range(30)))
    with pytest.raises(Flood):
        pair.up(frame(HEADERS, 5, 1, many))


def test_a_header_block_that_inflates_is_cut_at_the_limit(library: str) -> None:
    """The HPACK bomb: one large field in the table, then thousands of one-byte references to it."""
    pair = Pair(library)
    bomb = block((*REQUEST, (b"x", b"y" * 3_000))) + bytes((0x80 | 62,)) * 10_000
    with pytest.raises(RemoteProtocolError):
        pair.up(frame(HEADERS, 5, 1, bomb))


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
def test_continuations_without_end(library: str) -> None:
    pair = Pair(library)
    with pytest.raises(RemoteProtocolError):
        pair.up(frame(HEADERS, 0, 1, block()) + frame(CONTINUATION, 0, 1) * 100)


@pytest.mark.promise(
    "Security",
    "limits of a gRPC connection: resets, fields, continuations, pings, SETTINGS, gzip, shut windows",
)
@pytest.mark.parametrize("flood", [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0)])
def test_floods_of_pings_and_settings(library: str, flood: bytes) -> None:
    pair = Pair(library)
    with pytest.raises(Flood):
        pair.up(flood * 2_000)
    pair = Pair(library)
    for _ in range(5):
        pair.up(flood * 200)  # all are answered in between
        assert len(pair.server.data_to_send()) >= 200 * 9


def test_a_settings_frame_with_too_many_entries(library: str) -> None:
    pair = Pair(library)
    entries = b"".join((0x100 + i).to_bytes(2, "big") + bytes(4) for i in range(40))
    try:
        pair.up(frame(SETTINGS, 0, 0, entries))
    except RemoteProtocolError:
        return
    assert any(kind == GOAWAY for kind, _, _, _ in frames(pair.server.data_to_send()))


def test_a_peer_that_ignores_our_window_is_stopped(library: str) -> None:
    pair = Pair(library, Http2Limits(window=65_535, connection_window=65_535))
    stream = pair.client.send_request(REQUEST)
    pair.up()
    data = frame(0, 0, stream, bytes(16_384)) * 8  # in one read: nothing is acknowledged in between
    try:
        events = pair.up(data)
    except RemoteProtocolError:
        return
    assert len(body(events, stream)) <= 8 * 16_384


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE + frame(0, 0, 0, b"a"),
        PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
        PREFACE + frame(SETTINGS, 0, 0) + b"\xff\xff\xff\0\0\0\0\0\1",
        PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 5, 2, block()),
        PREFACE + frame(SETTINGS, 0, 0, b"123"),
    ],
)
def test_what_is_no_http2_ends_the_connection(library: str, data: bytes) -> None:
    pair = Pair(library)
    fresh = type(pair.server)(Http2Limits())
    try:
        events = fresh.receive_data(data)
    except RemoteProtocolError:
        events = []
    fresh.data_to_send()
    assert [event for event in events if event[0] != CHANGED] == []
    assert fresh.over


# -- both libraries say the same --------------------------------------------------------------------------------------


def conversation(seed: int) -> list[bytes]:
    """What a client says, in a few writes: calls of all kinds, resets, pings; a function of the seed."""
    random = Random(seed)
    client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    client.initiate_connection()
    writes, streams = [client.data_to_send()], []
    for _ in range(random.randrange(1, 12)):
        for _ in range(random.randrange(1, 6)):
            act = random.randrange(6)
            if act < 2 or not streams:
                extra = (b"x-mq-request-id", random.randbytes(12).hex().encode())
                ended = random.random() < 0.3
                stream = client.send_request((*REQUEST, extra), end_stream=ended)
                if not ended:
                    streams.append(stream)
            elif act < 4:
                size = random.choice((0, 1, 100, 3_000, 40_000))
                stream = random.choice(streams)
                ended = random.random() < 0.4
                client.send_data(stream, random.randbytes(size), end_stream=ended)
                if ended:
                    streams.remove(stream)
            elif act == 4:
                client.ping(random.randbytes(8))
            else:
                stream = streams.pop(random.randrange(len(streams)))
                client.reset_stream(stream, 8)
        writes.append(client.data_to_send())
    return writes


def told(library: str, writes: list[bytes], random: Random | None) -> Any:
    """What a server hears: the fields, the body and the end of every stream."""
    from tests.wire.http2_pair import LIBRARIES

    server = LIBRARIES[library](Http2Limits())
    found: dict[int, list[Any]] = {}
    for write in writes:
        pieces = [write]
        if random is not None:
            cuts = sorted(random.randrange(len(write) + 1) for _ in range(random.randrange(8)))
            pieces = [write[a:b] for a, b in zip([0, *cuts], [*cuts, len(write)])]
        for piece in pieces:
            for kind, stream, what, ended in server.receive_data(piece):
                if kind == CHANGED:
                    continue  # only ours tells
                entry = found.setdefault(stream, [None, b"", False, None])
                if kind == OPENED:
                    entry[0] = what
                elif kind == DATA:
                    entry[1] += what
                elif kind == GONE:
                    entry[3] = what
                entry[2] = entry[2] or ended
        server.data_to_send()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_both_libraries_hear_the_same(seed: int) -> None:
    writes = conversation(seed)
    assert told("ngh2", writes, None) == told("h2", writes, None)
    # In pieces a reset may come in a read of its own: then what came before it was heard.
    cut = Random(seed)
    ours = told("ngh2", writes, cut)
    assert ours == told("h2", writes, Random(seed))
    for stream, entry in told("ngh2", writes, None).items():
        if entry[3] is None:
            assert ours[stream] == entry
