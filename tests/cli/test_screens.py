"""Tables on terminals of several widths and in pipes: no name, id or address is ever cut, and what is left out is said."""

import asyncio
import json
import sys
from typing import ClassVar

import msgspec
import pytest
from tests.cli.conftest import Roquette
from typer.testing import Result

from roquette import Client
from roquette.admin.groups import LagRow
from roquette.admin.seek import SeekRow
from roquette.admin.top import BrokerState
from roquette.cli import connect, output
from roquette.cli.output import Output, show

TOPIC, GROUP = "orders-" + "o" * 80, "billing-" + "g" * 60
WIDTHS = (40, 80, 120, 200, None)


class Row(msgspec.Struct):
    name: str
    count: int
    note: str = ""
    why: str = ""

    NARROW: ClassVar = ("note",)


def printed(
    rows: list[msgspec.Struct],
    width: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[list[str], str]:
    if width is not None:
        monkeypatch.setattr(output, "screen", lambda: width)
    monkeypatch.setenv("NO_COLOR", "1")
    show(rows, Output.TABLE)
    out = capsys.readouterr()
    return out.out.splitlines(), out.err


def test_columns_go_in_their_order_and_then_a_row_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[msgspec.Struct] = [Row("a" * 30, 5, "x" * 20), Row("b", -1, "表" * 10)]

    wide, said = printed(rows, 80, monkeypatch, capsys)
    assert wide[0].split() == ["name", "count", "note"] and said == ""  # nobody has a reason
    assert wide[2].endswith("    -  " + "表" * 10)
    narrow, said = printed(rows, 40, monkeypatch, capsys)
    assert narrow[0].split() == ["name", "count"]
    assert said == "left out at 40 columns: note (-o json has them)\n"
    lines, said = printed(rows, 20, monkeypatch, capsys)
    assert lines[:3] == ["name   " + "a" * 30, "count  5", "note   " + "x" * 20] and lines[3] == ""


def test_words_in_the_last_column_go_on_in_the_next_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[msgspec.Struct] = [Row("a", 5, "n", "because " * 30), Row("b", 6, "n", "no")]

    lines, said = printed(rows, 80, monkeypatch, capsys)

    assert (len(lines), said) == (3, "")
    assert lines[1].endswith("because " * 29 + "because")


@pytest.mark.parametrize("width", WIDTHS)
def test_lag_and_addresses_are_there_at_any_width(
    width: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lags: list[msgspec.Struct] = [
        LagRow("orders", "broker-a", 3, 1_000, 900, 77, 1_700_000_000_000)
    ]
    brokers: list[msgspec.Struct] = [
        BrokerState("DefaultCluster", "broker-a", 0, f"192.168.100.{last}:10911", "V5_5_0", 1.0, 2.0, 3, 0.5, True)
        for last in (1, 2)
    ]  # fmt: skip

    lag = "\n".join(printed(lags, width, monkeypatch, capsys)[0])
    cluster = "\n".join(printed(brokers, width, monkeypatch, capsys)[0])

    assert "lag" in lag and "77" in lag and "broker-a" in lag
    assert "192.168.100.1:10911" in cluster and "192.168.100.2:10911" in cluster
    assert "…" not in lag + cluster


def test_a_name_of_a_thousand_characters_goes_whole_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, line), _ = printed([Row("n" * 9_000, 5, "x")], None, monkeypatch, capsys)

    assert line.split() == ["n" * 9_000, "5", "x"]


def test_what_is_had_again_is_a_negative_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[msgspec.Struct] = [SeekRow("t", "b", 0, 0, 90, 80, 0, -80, False)]

    lines, _ = printed(rows, None, monkeypatch, capsys)

    assert dict(zip(lines[0].split(), lines[1].split(), strict=True))["delta"] == "-80"


def test_what_a_bound_left_out_is_said(roquette: Roquette, namesrv: str) -> None:
    async def send() -> None:
        async with Client(namesrv, group="many") as mq:
            for _ in range(70):
                await mq.send("keyed", b"x", key="the-key")

    asyncio.run(send())
    asked = {
        ("msg", "find", "the-key", "-t", "keyed"): "gave 64 messages of keyed and may have more",
        (
            "msg",
            "find",
            "the-key",
            "-t",
            "keyed",
            "--most",
            "5",
        ): "gave 5 messages of keyed and may",
        ("explain", "the-key", "--topic", "keyed"): "gave 64 messages of keyed and may have more",
        ("explain", "the-key", "--topic", "keyed", "-o", "json"): "gave 64 messages of keyed",
    }
    for words, said in asked.items():
        done = roquette(*words)
        assert (done.exit_code, said in done.stderr) == (0, True), (words, done.stderr)
    roquette("produce", "keyed", "x", "--key", "once")
    assert "more" not in roquette("msg", "find", "once", "-t", "keyed").stderr


def test_what_is_said_beside_a_table_that_is_watched_is_not_wiped_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look() -> None:
        print("table")
        output.say("left out: 3 rows")

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    connect.again_and_again(look, Output.TABLE, 0.0, 1)
    assert capsys.readouterr().out == connect.CLEAR + "table\nleft out: 3 rows\n"


LISTS = {
    "cluster": ("broker", "address"),
    "topic list": ("topic",),
    "group list": ("group",),
    f"group lag {GROUP}": ("topic", "broker"),
    f"group show {GROUP}": ("client", "address"),
    "client ls": ("client", "group", "address"),
    "broker config get": ("key",),
    "namesrv config get": ("key",),
    f"msg find the-key -t {TOPIC}": ("id", "broker"),
}


def test_every_list_shows_every_name_whole_at_every_width(
    roquette: Roquette, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        def typed(*words: str) -> Result:
            done = roquette(*words)
            assert done.exit_code == 0, (words, done.output, done.exception)
            return done

        async with Client(namesrv, group="the-producers-of-this-shop") as mq:
            await mq.send(TOPIC, b"x", key="the-key")
            got = asyncio.Event()
            async with mq.subscribe(TOPIC, lambda message: got.set(), group=GROUP):
                await asyncio.wait_for(got.wait(), 30)
                while (await asyncio.to_thread(roquette, "group", "lag", GROUP)).exit_code:
                    await asyncio.sleep(0.1)  # its offset is committed soon after it was consumed
                for name, fields in LISTS.items():
                    words = name.split()
                    rows = json.loads((await asyncio.to_thread(typed, *words, "-o", "json")).stdout)
                    wanted = {str(row[field]) for row in rows for field in fields}
                    assert wanted - {""}, name
                    for width in WIDTHS:
                        with monkeypatch.context() as patch:
                            if width is not None:
                                patch.setattr(output, "screen", lambda at=width: at)
                            shown = (await asyncio.to_thread(typed, *words)).stdout
                        lacks = [text for text in wanted if text not in shown]
                        assert not lacks, (name, width, lacks, shown)

    asyncio.run(run())
