"""TLS byte by byte: cut anywhere, in single bytes, closed by both, and with records that were changed on the way."""

import os
import random
import ssl
from collections.abc import Iterable

import pytest
from tests.remoting.tls_pipe import Couple

from roquette.remoting import tls
from roquette.remoting.tls import TlsRefused

BOTH = ("client", "server")


def check(couple: Couple) -> None:
    """Whatever came on the way: each end was told once how the handshake went, and nothing but what was said."""
    for who in BOTH:
        (result,) = couple.results[who]
        talk = couple.talks[who]
        assert result is None or (isinstance(result, TlsRefused) and not hasattr(talk, "transport"))
        assert b"hello".startswith(talk.got) or talk.got.startswith(b"hello")
        assert len(talk.lost) == (1 if hasattr(talk, "transport") else 0)


@pytest.mark.parametrize("twelve", [False, True], ids=["1.3", "1.2"])
@pytest.mark.parametrize("asks", [False, True], ids=["", "mutual"])
def test_single_bytes_are_enough(twelve: bool, asks: bool) -> None:
    couple = Couple(lambda who, data: [bytes((b,)) for b in data], twelve=twelve, asks=asks)
    couple.pump()
    assert couple.results == {"client": [None], "server": [None]}
    assert [couple.talks[who].got for who in BOTH] == [b"hello"] * 2


@pytest.mark.promise(
    "Peers", "a TLS connection may be lost, or its records changed, after any byte"
)
@pytest.mark.parametrize("twelve", [False, True], ids=["1.3", "1.2"])
def test_a_connection_may_be_lost_after_any_byte(twelve: bool) -> None:
    whole = Couple(twelve=twelve)
    sizes = {"client": 0, "server": 0}

    def count(who: str, data: bytes) -> Iterable[bytes]:
        sizes[who] += len(data)
        return [data]

    whole.way = count
    whole.pump()
    for victim in BOTH:
        for at in [*range(8), *range(8, sizes[victim], 37), sizes[victim]]:
            left = [at]

            def way(
                who: str, data: bytes, left: list[int] = left, victim: str = victim
            ) -> Iterable[bytes]:
                if who != victim:
                    return [data]
                passed, left[0] = data[: left[0]], max(0, left[0] - len(data))
                return [passed]

            couple = Couple(way, twelve=twelve)
            couple.pump()
            couple.cut()
            check(couple)


def test_both_ends_close_at_once() -> None:
    couple = Couple()
    couple.pump()
    for who in BOTH:
        couple.streams[who].write(b" and bye")
        couple.streams[who].close()
        couple.streams[who].close()
        couple.streams[who].write(b"too late")
    assert all(couple.raws[who].closing for who in BOTH)
    for who in BOTH:
        couple.streams[who].connection_lost(None)
    assert all(couple.talks[who].lost == [None] for who in BOTH)


def test_an_end_in_order_is_told_from_a_cut() -> None:
    couple = Couple()
    couple.pump()
    couple.streams["client"].close()
    couple.pump()
    assert couple.talks["server"].eof and couple.talks["server"].lost == [None]
    couple = Couple()
    couple.pump()
    couple.streams["server"].eof_received()
    couple.cut()
    (error,) = couple.talks["server"].lost
    assert "TLS did not end" in str(error) and not couple.talks["server"].eof


def test_half_an_end_leaves_the_other_direction_open() -> None:
    couple = Couple()
    couple.pump()
    couple.talks["client"].eof_received = lambda: True  # type: ignore[method-assign]
    couple.streams["server"].write(b", the answer")
    couple.streams["server"].write_eof()
    couple.pump()
    assert couple.raws["server"].ended and couple.talks["client"].got == b"hello, the answer"
    couple.streams["client"].write(b" goes on")
    couple.pump()
    assert couple.talks["server"].got == b"hello goes on"


def test_what_is_read_waits_while_reading_is_paused() -> None:
    couple = Couple(says=b"")
    couple.pump()
    couple.streams["server"].pause_reading()
    assert couple.raws["server"].paused
    couple.streams["client"].writelines([b"x" * 100] * 900 + [bytes(40_000)])
    couple.pump()
    assert couple.talks["server"].got == b""
    couple.streams["server"]._paused = False
    couple.streams["server"]._read_rest()
    assert couple.talks["server"].got == b"x" * 90_000 + bytes(40_000)
    assert couple.talks["server"].calls == 1


def test_small_parts_leave_in_one_record() -> None:
    couple = Couple(says=b"")
    couple.pump()
    couple.streams["server"].writelines([b"a" * 50] * 100)
    assert [len(each) for each in couple.raws["server"].out] == [5_022]


def test_a_handshake_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MOST_HANDSHAKE", 100)
    couple = Couple(lambda who, data: [bytes((b,)) for b in data])
    couple.pump()
    assert "does not end after 101 bytes" in str(couple.results["server"][0])


def test_old_versions_and_renegotiation_are_off_whatever_the_context_said() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    tls.hardened(context)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def fuzz(seed: int) -> None:
    """One couple; a piece of what one end says, of the handshake or after it, is changed on the way."""
    rnd = random.Random(seed)
    victim, after = rnd.choice(BOTH), rnd.choice((0, 0, 0, 1, 1, 2, 3))
    seen = [0]

    def way(who: str, data: bytes) -> Iterable[bytes]:
        if who != victim or not data:
            return [data]
        seen[0] += 1
        if seen[0] != after + 1:
            return [data]
        made = bytearray(data)
        for _ in range(rnd.choice((1, 1, 1, 2, 8))):
            at = rnd.randrange(len(made) + 1)
            match rnd.randrange(6):
                case 0 | 1:
                    made[at : at + 1] = bytes((rnd.randrange(256),))
                case 2:
                    made[at:at] = rnd.randbytes(rnd.choice((1, 5, 300)))
                case 3:
                    del made[at : at + rnd.choice((1, 4, 100))]
                case 4:
                    made[at:at] = made[: rnd.randrange(600)]
                case 5:
                    made[at : at + 1] = bytes((rnd.choice((0, 1, 20, 21, 22, 23, 24, 255)),))
        cut = rnd.randrange(len(made) + 1)
        return [bytes(made[:cut]), bytes(made[cut:])]

    couple = Couple(way, twelve=rnd.random() < 0.3, asks=rnd.random() < 0.2)
    couple.pump()
    for who in BOTH:  # application records
        if hasattr(couple.talks[who], "transport"):
            couple.streams[who].write(rnd.choice((b"more", bytes(20_000))))
    couple.pump()
    couple.cut()
    check(couple)


@pytest.mark.promise(
    "Peers", "a TLS connection may be lost, or its records changed, after any byte"
)
def test_changed_records_end_in_words() -> None:
    for seed in range(2_000):
        fuzz(seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_many_changed_records_end_in_words(part: int) -> None:
    each = int(os.environ.get("ROQUETTE_TLS_FUZZ", "1000000")) // 20
    for seed in range(10_000 + part * each, 10_000 + (part + 1) * each):
        fuzz(seed)


def test_records_without_data_are_ended() -> None:
    """Changes of keys: Python's ssl cannot ask for them, so that the sums are what is looked at."""
    for sum_of, most in (("_forced", tls.MOST_FORCED), ("_excess", tls.MOST_EXCESS)):
        couple = Couple()
        couple.pump()
        setattr(couple.streams["server"], sum_of, most + 1)
        couple.streams["client"].write(b"x")
        couple.pump()
        assert "records without data" in str(couple.streams["server"]._error)


@pytest.mark.parametrize("twelve", [False, True], ids=["1.3", "1.2"])
def test_what_is_around_data_is_no_excess(twelve: bool) -> None:
    rnd = random.Random(7)
    couple = Couple(lambda who, data: cut(rnd, data), twelve=twelve, says=b"")
    couple.pump()
    sent = bytearray()
    for size in [1] * 3_000 + [100, 16_384, 16_385, 100_000] * 10:
        sent += rnd.randbytes(size)
        couple.streams["client"].write(bytes(sent[-size:]))
    couple.pump()
    server = couple.streams["server"]
    assert couple.talks["server"].got == sent and server._excess <= 0 and server._forced == 0
    if not twelve:
        assert server._excess == 0


def cut(rnd: random.Random, data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        size = rnd.choice((1, 50, 5_000, 40_000))
        yield data[at : at + size]
        at += size
