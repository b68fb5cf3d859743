"""Options are checked once, and errors name the option and what to do."""

import pytest

from roquette.errors import ConfigError
from roquette.spark.options import EARLIEST, LATEST, Position, ReadOptions, read_options

NEEDED = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "T"}


def test_the_least_one_must_say() -> None:
    assert read_options(NEEDED) == ReadOptions(namesrv_addr="127.0.0.1:9876", topics=("T",))


def test_names_are_case_insensitive_and_have_aliases() -> None:
    options = read_options({"NAMESERVER": "a:1", "Topic": "T2, T1", "MAXOFFSETSPERTRIGGER": "5"})

    assert options == ReadOptions(
        namesrv_addr="a:1", topics=("T1", "T2"), max_offsets_per_trigger=5
    )


def test_what_sparks_catalog_adds_is_tolerated() -> None:
    catalog = {"owner": "me", "provider": "rocketmq", "option.subscribe": "T"}

    assert read_options(NEEDED | catalog) == read_options(NEEDED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position(default=EARLIEST)),
        (" Latest ", Position(default=LATEST)),
        ('{"T":{"b":{"0":5,"1":-1}}}', Position(queues=(("T", "b", 0, 5), ("T", "b", 1, -1)))),
        ('{"v":1,"offsets":{"T":{"b":{"0":5}}}}', Position(queues=(("T", "b", 0, 5),))),
    ],
)
def test_starting_offsets(text: str, expected: Position) -> None:
    assert read_options(NEEDED | {"startingOffsets": text}).starting == expected


def test_a_timestamp_wins_over_offsets() -> None:
    options = read_options(NEEDED | {"startingOffsets": "latest", "startingTimestamp": "17"})

    assert options.starting == Position(timestamp_ms=17)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "T"}, "namesrvAddr is required"),
        ({"namesrvAddr": "a:1"}, "subscribe is required"),
        (NEEDED | {"topic": "U"}, "subscribe and topic mean the same"),
        (
            NEEDED | {"startingOffset": "earliest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        (NEEDED | {"zzz": "1"}, "unknown option zzz; known: namesrvAddr"),
        (
            NEEDED | {"startingOffsets": "oldest"},
            "startingOffsets must be earliest, latest or JSON",
        ),
        (NEEDED | {"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "offset -3"),
        (NEEDED | {"startingOffsets": '{"T":[1]}'}, "startingOffsets must be"),
        (
            NEEDED | {"maxOffsetsPerTrigger": "0"},
            "maxOffsetsPerTrigger must be a number of at least 1",
        ),
        (NEEDED | {"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false"),
    ],
)
def test_wrong_options_raise_one_clear_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(given)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
