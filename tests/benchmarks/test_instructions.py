"""The gate in instructions: what it compares, what it says, and that its paths do their work. Nothing here runs valgrind."""

import asyncio
import json
from pathlib import Path

import pytest
from benchmarks.instruction_bench import Bench, Failed

from benchmarks import instruction_paths as paths
from benchmarks import instructions as gate

HERE = {"python": "CPython 3.11.7", "compiler": "GCC 12", "libc": "glibc 2.36"}
THERE = {**HERE, "libc": "glibc 2.41"}
COMMITTED = gate.Table(HERE, {"msgspec": "0.22"}, {"send-4x32": 100_000, "ack": 50_000})


def now(environment: dict[str, str] = HERE, **rows: int) -> gate.Table:
    named = {row.replace("_", "-"): value for row, value in rows.items()}
    return gate.Table(environment, {"msgspec": "0.23"}, named)


# Comparing


def test_three_percent_more_fails_and_names_row_figures_and_other_libraries() -> None:
    verdict = gate.judged(COMMITTED, now(send_4x32=103_000, ack=50_000))
    assert verdict.failed
    assert (
        "FAILED send-4x32: 103,000 instructions a message, 100,000 are committed: +3.0%"
        in (verdict.words[0])
    )
    assert "msgspec: 0.23, the table's is 0.22" in verdict.words[1]


@pytest.mark.parametrize("value", [98_000, 99_000, 100_000, 101_000, 102_000])
def test_up_to_two_percent_passes(value: int) -> None:
    verdict = gate.judged(COMMITTED, now(send_4x32=value))
    assert not verdict.failed
    assert verdict.words == ["All figures are within the tolerance."]


def test_one_instruction_beyond_two_percent_fails() -> None:
    assert gate.judged(COMMITTED, now(send_4x32=102_001)).failed


def test_one_row_of_two_is_enough_to_fail() -> None:
    verdict = gate.judged(COMMITTED, now(send_4x32=60_000, ack=51_500))
    assert verdict.failed
    assert [word for word in verdict.words if "FAILED" in word] == [verdict.words[1]]


def test_three_percent_less_passes_and_asks_for_a_new_table() -> None:
    verdict = gate.judged(COMMITTED, now(send_4x32=97_000))
    assert not verdict.failed
    assert "cheaper (-3.0%): write it anew" in verdict.words[0]


@pytest.mark.parametrize("name", list(HERE))
def test_another_environment_fails_nothing_and_says_what_is_other(name: str) -> None:
    verdict = gate.judged(COMMITTED, now({**HERE, name: "another"}, send_4x32=200_000))
    assert not verdict.failed
    assert "Nothing is judged here" in verdict.words[0]
    assert f"{name}: another, the table's is {HERE[name]}" in verdict.words[1]


def test_a_row_without_a_committed_figure_fails() -> None:
    verdict = gate.judged(COMMITTED, now(pull_32=4_000))
    assert verdict.failed
    assert "pull-32: 4,000, and no figure is committed" in verdict.words[0]


# The table


def test_a_table_is_read_as_it_was_written() -> None:
    assert gate.Table.read(COMMITTED.text()) == COMMITTED


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 1}'])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(gate.Failed, match=r"instructions\.json is no table"):
        gate.Table.read(text)


def test_rows_are_written_into_a_table_of_the_same_environment() -> None:
    joined = COMMITTED.joined(now(ack=40_000))
    assert joined.rows == {"send-4x32": 100_000, "ack": 40_000}


def test_some_rows_of_another_environment_are_not_written_beside_the_others() -> None:
    with pytest.raises(gate.Failed, match="write all its rows"):
        COMMITTED.joined(now(THERE, ack=40_000))
    assert COMMITTED.joined(now(THERE, ack=1, send_4x32=2)).environment == THERE


def test_the_committed_table_has_each_row_and_says_where_it_comes_from() -> None:
    table = gate.Table.read(gate.TABLE.read_text())
    assert list(table.rows) == list(gate.ROWS)
    assert all(table.environment[name] for name in ("python", "compiler", "libc"))


def test_each_row_has_a_path_and_words_and_four_paths_are_quick() -> None:
    assert sorted(row for way in paths.WAYS for row in way.rows) == sorted(gate.ROWS)
    assert list(gate.SEEN) == list(gate.ROWS)
    assert sum(1 for way in paths.WAYS if {*way.rows} <= {*gate.QUICK}) == 4


def test_people_see_row_figure_committed_figure_and_difference() -> None:
    lines = gate.shown(COMMITTED, now(send_4x32=103_000, pull_32=4_000)).splitlines()
    assert lines[1].split() == ["send-4x32", "103,000", "100,000", "+3.00%"]
    assert lines[2].split() == ["pull-32", "4,000", "-", "-"]


def test_programs_get_the_same_as_json() -> None:
    counted = now(send_4x32=103_000)
    told = json.loads(gate.program_text(COMMITTED, counted, gate.judged(COMMITTED, counted)))
    assert told["failed"] is True
    assert told["same_environment"] is True
    assert told["rows"]["send-4x32"]["committed"] == 100_000
    assert told["rows"]["send-4x32"]["difference"] == pytest.approx(0.03)


def profile(row: str, total: int) -> str:
    return (
        f"version: 1\ndesc: Trigger: Client Request: {row}\nsummary: {total}\n\ntotals: {total}\n"
    )


def test_a_figure_is_the_profile_s_total_for_each_message() -> None:
    ends = "version: 1\ndesc: Trigger: Program termination\nsummary: 0\n"
    texts = [profile("ack", 3_000), ends, profile("send-4x32", 1_000)]
    assert gate.counted_in(texts, {"ack": 3, "send-4x32": 2}) == {"send-4x32": 500, "ack": 1_000}


@pytest.mark.parametrize("texts", [[], [profile("ack", 0)], [profile("ack", 1)] * 2])
def test_a_row_without_its_one_profile_fails(texts: list[str]) -> None:
    with pytest.raises(gate.Failed, match="callgrind counted ack"):
        gate.counted_in(texts, {"ack": 1})


# What is missing


def test_words_name_what_is_missing_and_the_package(tmp_path: Path) -> None:
    header = tmp_path / "callgrind.h"
    words = gate.missing(lambda program: False, header)
    assert [word.rpartition(": ")[2] for word in words] == [
        "apt-get install valgrind",
        "apt-get install gcc",
        "apt-get install valgrind",
    ]
    header.touch()
    assert gate.missing(lambda program: True, header) == []


def test_without_valgrind_it_is_skipped_but_in_ci() -> None:
    nothing = {"valgrind": False, "cc": True}.__getitem__
    assert gate.may_skip(nothing, {})
    assert gate.may_skip(nothing, {"CI": "false"})
    assert not gate.may_skip(nothing, {"CI": "true"})
    assert not gate.may_skip(lambda program: True, {})


def test_the_command_ends_with_0_where_it_is_skipped_and_with_1_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "_has", lambda program: program != "valgrind")
    monkeypatch.delenv("CI", raising=False)
    assert gate.main(["--check", "--quick"]) == 0
    assert "skipped, valgrind is missing: apt-get install valgrind" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert gate.main(["--check", "--quick"]) == 1
    assert "valgrind is missing: apt-get install valgrind" in capsys.readouterr().err


def test_the_interpreted_form_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = {"form": "interpreted: a.py has changed", "environment": {}, "libraries": {}}
    monkeypatch.setattr(gate, "_ask", lambda *words: json.dumps(told))
    with pytest.raises(gate.Failed, match=r"interpreted: a\.py has changed.*make compile"):
        gate.count(["ack"], tmp_path)


@pytest.mark.parametrize(("share", "status"), [(1.01, 0), (1.03, 1)])
def test_the_command_s_status_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float, status: int
) -> None:
    table = tmp_path / "instructions.json"
    table.write_text(COMMITTED.text())
    monkeypatch.setattr(gate, "TABLE", table)
    monkeypatch.setattr(gate, "may_skip", lambda has, environment: False)
    monkeypatch.setattr(gate, "missing", lambda has, header: [])
    monkeypatch.setattr(gate, "run", lambda rows, to: now(ack=round(50_000 * share)))
    assert gate.main(["--check", "--rows", "ack"]) == status
    assert gate.main(["--check", "--json", "--rows", "ack"]) == status
    assert gate.main(["--rows", "ack"]) == 0  # shown, not judged


def test_the_counted_process_inherits_nothing_that_changes_figures() -> None:
    given = {
        "PATH": "/bin", "PYTHONPATH": "src", "PYTHONMALLOC": "debug", "PYTHONHASHSEED": "7",
        "ROQUETTE_INTERPRETED": "1", "MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "x", "LD_PRELOAD": "y",
    }  # fmt: skip
    assert gate.clean(given) == {
        "PATH": "/bin",
        "PYTHONPATH": "src",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1073741824",
    }


# The paths, without valgrind: each reads its answers, and stops at one that is no success.


class NoMarks:
    """Notes what would have been counted."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def start(self) -> None:
        """Nothing."""

    def stop(self, name: bytes) -> None:
        """Note it."""
        self.rows.append(name.decode())

    def turn_over(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("way", paths.WAYS, ids=lambda way: way.rows[0])
def test_a_path_does_its_work_and_counts_its_rows_once(way: paths.Way, tmp_path: Path) -> None:
    marks = NoMarks()
    messages = asyncio.run(paths.walked(way, marks, tmp_path))
    assert tuple(marks.rows) == tuple(messages) == way.rows
    assert min(messages.values()) > 0


async def _unproven(folder: Path) -> None:
    bench = Bench(NoMarks())
    await bench.start(folder, ["topic"], signed=True)
    await paths.sends("topic", 1, 2)(bench)


def test_a_path_whose_answers_are_refusals_fails(tmp_path: Path) -> None:
    # It shows as well that the broker of the signed row does ask.
    with pytest.raises(Failed, match="topic was answered 16 username cannot be null"):
        asyncio.run(_unproven(tmp_path))


async def _unanswered(folder: Path) -> None:
    bench = Bench(NoMarks())
    await bench.start(folder, ["topic"])
    (turn,) = paths.spread([bench.connect()], 1, lambda i: b"", 1)
    bench.do([turn])
    paths.replies([turn[0][0]], 1, "a request")


def test_a_path_without_answers_fails(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="a request: 0 answers came, not 1"):
        asyncio.run(_unanswered(tmp_path))
