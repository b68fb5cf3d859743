"""An option is declared once; every place reads it alike, and every refusal has one form."""

import enum
from dataclasses import dataclass

import pytest

from roquette.base.options import (
    DURATION,
    PERCENT,
    REQUIRED,
    SIZE,
    OptionKind,
    OptionReader,
    Unfit,
    did_you_mean,
    key_values,
    live,
    matching,
    option,
    options_of,
    split_addresses,
)
from roquette.errors import ConfigError


class Mode(enum.Enum):
    FAST = 1
    SAFE = 2


def even(text: str) -> int:
    if int(text) % 2:
        raise Unfit(f"{text} is odd")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    where: str = option(REQUIRED, "host:port", also=["place"])
    wait_ms: int = option("15m", kind=DURATION, name="wait")
    bytes: int | None = option(None, kind=SIZE, most=1 << 30)
    percent: int = live(50, kind=PERCENT)
    share: float = option(0.5)
    shift: int = option(-1, least=-1)
    mode: Mode = option(Mode.FAST)
    form: str = option("json", choices=("json", "raw"))
    hour: str = option("04", kind=matching(r"\d\d", "an hour such as 04"))
    pair: int = option(0, kind=OptionKind(wanted="a number", parse=even))
    names: tuple[str, ...] = option(())
    words: tuple[str, ...] = option((), split=False)
    password: str = option("", choices=("x",), secret=True)
    plain: int = 3


KNOWN = options_of(Sample)
READER = OptionReader(
    names=lambda known: (known.name, *known.also),
    normal=str.lower,
    shown=lambda known: f"option {known.name}",
    missing=lambda known: f": {known.help}",
)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        *[("wait", text, ms) for text, ms in (("500", 500), ("90 s", 90_000), ("24H", 86_400_000))],
        *[("wait", text, ms) for text, ms in (("7d", 604_800_000), (" 2min ", 120_000))],
        *[
            ("bytes", text, size)
            for text, size in (("10", 10), ("64m", 64 << 20), ("1 GiB", 1 << 30))
        ],
        ("percent", "100", 100),
        ("share", 1, 1.0),
        ("shift", "-1", -1),
        ("mode", "safe", Mode.SAFE),
        ("form", "RAW", "raw"),
        ("pair", "4", 4),
        ("names", " a, b,,c ", ("a", "b", "c")),
        ("names", ["a,b", "c"], ("a", "b", "c")),
        ("words", "k=1,2", ("k=1,2",)),
    ],
)
def test_values(name: str, given: object, value: object) -> None:
    assert KNOWN[name].read(given, "x") == value


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("wait", "soon", "x must be a time such as 10s or 15m, not 'soon'"),
        ("bytes", "2g", "x must be a size such as 128m of at most 1073741824, not '2g'"),
        ("percent", "0", "x must be a whole number from 1 to 100, not '0'"),
        ("percent", True, "x must be a whole number from 1 to 100, not True"),
        ("share", "nan", "x must be a number of at least 0, not 'nan'"),
        ("shift", "-2", "x must be a whole number of at least -1, not '-2'"),
        ("mode", "slow", "x must be FAST or SAFE, not 'slow'"),
        ("hour", "4", "x must be an hour such as 04, not '4'"),
        ("pair", "3", "x: 3 is odd"),
        ("names", 5, "x must be a text or a list of texts, not 5"),
        ("password", "hunter2", "x must be x"),
        ("plain", "9" * 5_000, f"x must be a whole number of at least 0, not '{'9' * 80}...'"),
    ],
)
def test_refusals_say_what_is_wanted_and_what_is_given(name: str, given: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KNOWN[name].read(given, "x")
    assert str(caught.value) == said


def test_a_default_may_be_written_as_people_write_it() -> None:
    assert (Sample(where="a").wait_ms, KNOWN["wait"].written) == (900_000, "15m")
    assert [known.name for known in KNOWN.values() if known.mutable] == ["percent"]


def test_names_are_found_in_any_spelling_of_their_place() -> None:
    values = READER.values(
        Sample, {"PLACE": "a:1", "Wait": "1s", "own": 1}, "s", tolerated=lambda name: name == "own"
    )

    assert READER.build(Sample, values, "s") == Sample(where="a:1", wait_ms=1_000)
    for given, said in (
        ({"wait": "1s"}, "s: option where is required: host:port"),
        ({"where": "a", "wiat": "1"}, "s: unknown option wiat; did you mean wait?"),
        (
            {"where": "a", "place": "b"},
            "s: options where and place mean the same: give one of them",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            READER.build(Sample, READER.values(Sample, given, "s"), "s")
        assert str(caught.value) == said


def test_words_of_the_command_line() -> None:
    assert did_you_mean("listenprt", ["listenPort", "name"]) == "; did you mean listenPort?"
    assert did_you_mean("zzz", ["listenPort"]) == ""
    assert key_values(["a=1", " b =2=3"], "--set") == {"a": "1", "b": "2=3"}
    assert split_addresses(" a:1; b:2,a:1;") == ["a:1", "b:2"]
    with pytest.raises(ConfigError, match="--set 'a' is not of the form key=value"):
        key_values(["a"], "--set")
