"""`python -m benchmarks.instructions`: instructions a message, path by path. Counted, not timed: a busy machine changes nothing.

valgrind's callgrind runs a process that has a whole broker and no socket. A connection gets recorded frames as a socket would give
them, the dispatcher runs its turn, the processor and the store do their work, the answer goes into a transport that keeps it. Only
that is counted: Python's C code, our compiled code and the C libraries, in user mode. Afterwards every answer is read: one that is
no success ends the run. `benchmarks/instruction_paths.py` has the paths.

`benchmarks/instructions.json` has the committed figures and where they come from. With the same Python, compiler and C library a
figure that is 2 % above fails `--check`; elsewhere the differences are shown and nothing fails.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

# Nothing of Roquette is imported here: `--help` and the comparing need neither its dependencies nor its compiled form.

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
TABLE: Final = HERE / "instructions.json"
TOLERANCE: Final = 0.02
ROWS: Final = (
    "send-4x32", "pull-32", "pop-32", "ack", "grpc-send-32",
    "send-32x1", "send-1x1", "send-binary-4x32", "send-signed-4x32", "batch-32x1k",
    "commit-offset", "heartbeat", "grpc-receive-32", "grpc-ack-32", "client-send-32", "client-send-1",
)  # fmt: skip
QUICK: Final = ROWS[:5]
"""Of `make test`: the four paths send, pull, pop with its acknowledgements, and send over gRPC."""
SEEN: Final = {
    "send-4x32": "SEND_MESSAGE_V2, 128 B; a turn has 4 connections with 32 requests each",
    "pull-32": "PULL_MESSAGE that finds 32 messages, 4 connections; a message",
    "pop-32": "POP_MESSAGE that finds 32 messages; a message",
    "ack": "ACK_MESSAGE of what was popped, 32 in a turn",
    "grpc-send-32": "SendMessage of v5, 32 calls in a turn on one connection",
    "send-32x1": "as send-4x32; 32 connections with one request each",
    "send-1x1": "one request in a turn: what a turn costs, too",
    "send-binary-4x32": "as send-4x32, with binary headers",
    "send-signed-4x32": "as send-4x32, signed; ACL 2.0 asks who it is, and for its right to the topic",
    "batch-32x1k": "SEND_BATCH_MESSAGE of 32 messages of 1 KiB; a message",
    "commit-offset": "UPDATE_CONSUMER_OFFSET, 32 in a turn",
    "heartbeat": "HEART_BEAT of a client that is known, 4 in a turn",
    "grpc-receive-32": "ReceiveMessage of v5 that finds 32 messages; a message",
    "grpc-ack-32": "AckMessage of each of them, 32 calls in a turn on one connection",
    "client-send-32": "our client: 32 x send_nowait, then their receipts; without what the broker does",
    "client-send-1": "our client: send, and its receipt; without what the broker does",
}
"""What is counted of each row, in words."""

# What other versions of would change a figure, too. They decide nothing; they are named where a figure is another one.
LIBRARIES: Final = ("mypy", "msgspec", "ngh2", "protobuf")
# What would change what Python, the C library or Roquette do while they are counted.
NOT_INHERITED: Final = re.compile(r"ROQUETTE_|PYTHON(?!PATH$)|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD")


class Failed(Exception):
    """The run cannot give figures; the text says why, and what to do."""


# The table: what is committed, what was counted, and how they compare. Pure.


@dataclass(frozen=True, slots=True)
class Table:
    """Figures and where they come from.

    Attributes:
        environment: the names of Python (version, build), of the compiler of the compiled form, and of the C library.
        libraries: versions of what else runs in the paths, and of valgrind.
        rows: instructions a message of each row.
    """

    environment: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "Table":
        """What `text` wrote. Raises Failed: it is no such table."""
        try:
            found = json.loads(text)
            return cls(found["environment"], found["libraries"], found["rows"])
        except (ValueError, TypeError, KeyError) as error:
            raise Failed(
                f"{TABLE.relative_to(ROOT)} is no table ({error!r}): write it with --write"
            ) from None

    def text(self) -> str:
        """As it is committed."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def joined(self, newer: "Table") -> "Table":
        """The same with the rows of `newer`. Raises Failed: they come from elsewhere, so they do not compare."""
        if self.rows and others(self.environment, newer.environment):
            if set(self.rows) - set(newer.rows):
                raise Failed("the table comes from elsewhere: write all its rows, without --rows")
            return newer
        rows = {row: (self.rows | newer.rows).get(row, 0) for row in ROWS}
        return Table(newer.environment, newer.libraries, {row: n for row, n in rows.items() if n})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison found.

    Attributes:
        failed: a row is more than `TOLERANCE` above its committed figure, or has none, in the same environment.
        words: what is to be said of it, a sentence a line.
    """

    failed: bool
    words: list[str]


def others(committed: dict[str, str], now: dict[str, str]) -> list[str]:
    """In words, what is not the same in both."""
    names = list(dict.fromkeys([*committed, *now]))
    return [
        f"{name}: {now.get(name, 'none')}, the table's is {committed.get(name, 'none')}"
        for name in names
        if committed.get(name) != now.get(name)
    ]


def difference(committed: int | None, now: int) -> float | None:
    """How much more it is now, as a share of what is committed; None: nothing is committed."""
    return now / committed - 1 if committed else None


def judged(committed: Table, now: Table) -> Verdict:
    """Whether what was counted may stand beside what is committed."""
    elsewhere = others(committed.environment, now.environment)
    if elsewhere:
        return Verdict(
            False,
            [
                "Nothing is judged here: the figures belong to another environment.",
                *(f"  {each}" for each in elsewhere),
            ],
        )
    words: list[str] = []
    failed = False
    for row, value in now.rows.items():
        before = committed.rows.get(row)
        more = difference(before, value)
        if before is None or more is None:
            failed = True
            words.append(f"FAILED {row}: {value:,}, and no figure is committed: --write it.")
        elif value > before * (1 + TOLERANCE):
            failed = True
            words.append(
                f"FAILED {row}: {value:,} instructions a message, {before:,} are committed: {more:+.1%}, "
                f"and {TOLERANCE:.0%} more is allowed. If it costs on purpose, --write the table in the same commit."
            )
        elif value < before * (1 - TOLERANCE):
            words.append(
                f"{row} has become cheaper ({more:+.1%}): write it anew with --write, or the gain may be lost unseen."
            )
    if failed:
        words += [f"  also other: {each}" for each in others(committed.libraries, now.libraries)]
    return Verdict(failed, words or ["All figures are within the tolerance."])


def shown(committed: Table, now: Table) -> str:
    """The table for people."""
    lines = [f"{'row':<18}{'instructions a message':>24}{'committed':>12}{'difference':>12}"]
    for row, value in now.rows.items():
        before = committed.rows.get(row)
        more = difference(before, value)
        then, much = ("-", "-") if before is None else (f"{before:,}", f"{more:+.2%}")
        lines.append(f"{row:<18}{value:>24,}{then:>12}{much:>12}")
    return "\n".join(lines)


def program_text(committed: Table, now: Table, verdict: Verdict) -> str:
    """The table for programs, as JSON."""
    rows = {
        row: {
            "instructions": value,
            "committed": committed.rows.get(row),
            "difference": difference(committed.rows.get(row), value),
        }
        for row, value in now.rows.items()
    }
    return json.dumps(
        {
            "environment": now.environment,
            "libraries": now.libraries,
            "same_environment": not others(committed.environment, now.environment),
            "rows": rows,
            "failed": verdict.failed,
            "words": verdict.words,
        },
        indent=2,
    )


def counted_in(profiles: Sequence[str], messages: dict[str, int]) -> dict[str, int]:
    """Instructions a message of each row, from callgrind's profiles.

    Args:
        profiles: texts of its files, of which each names its row.
        messages: how many messages were counted for each row.

    Raises:
        Failed: a row has no profile, or more than one.
    """
    totals: dict[str, list[int]] = {row: [] for row in messages}
    for text in profiles:
        label = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.M)
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
        if label and total and label[1] in totals:
            totals[label[1]].append(int(total[1]))
    for row, found in totals.items():
        if len(found) != 1 or not found[0]:
            raise Failed(f"callgrind counted {row} {len(found)} times, not once")
    return {row: round(totals[row][0] / messages[row]) for row in ROWS if row in totals}


# What is needed, and words for what is missing.


def missing(has: Callable[[str], bool], header: Path) -> list[str]:
    """What is not there, in words with the Debian package that has it.

    Args:
        has: whether a program is found. header: of valgrind's client requests.
    """
    words = []
    if not has("valgrind"):
        words.append("valgrind is missing: apt-get install valgrind")
    if not has("cc"):
        words.append("a C compiler (cc) is missing: apt-get install gcc")
    if not header.is_file():
        words.append(f"valgrind's headers ({header}) are missing: apt-get install valgrind")
    return words


def may_skip(has: Callable[[str], bool], environment: Mapping[str, str]) -> bool:
    """Whether to do without the gate: there is no valgrind, and this is not CI, which must have it."""
    return not has("valgrind") and environment.get("CI", "").lower() not in ("true", "1")


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the counted process: hashes of texts are always the same, and the compiled form is not refused.

    The C library copies by vectors: valgrind counts an instruction that repeats itself once a byte, and libc takes that one
    by where a buffer happens to lie.
    """
    kept = {name: value for name, value in environment.items() if not NOT_INHERITED.match(name)}
    vectors = {"GLIBC_TUNABLES": f"glibc.cpu.x86_rep_movsb_threshold={1 << 30}"}
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", **vectors}


def _has(program: str) -> bool:
    return shutil.which(program) is not None


def _header() -> Path:
    folders = [Path(each) for each in os.environ.get("CPATH", "").split(":") if each]
    folders += [Path("/usr/include"), Path("/usr/local/include")]
    found = [each / "valgrind/callgrind.h" for each in folders]
    return next((each for each in found if each.is_file()), found[-2])


def _library() -> Path:
    """callgrind.c, compiled for this machine. Raises Failed."""
    made, source = ROOT / ".cache/benchmarks/callgrind.so", HERE / "callgrind.c"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        made.parent.mkdir(parents=True, exist_ok=True)
        fresh = made.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(fresh), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{source.relative_to(ROOT)} does not compile:\n{done.stderr.strip()}")
        fresh.replace(made)
    return made


def described() -> dict[str, Any]:
    """Of a process like the counted one: which form of Roquette it has, and where its figures come from."""
    from roquette.base.form import form

    form_now = form()
    compiler = "none"
    spec = importlib.util.find_spec("roquette.message.record_view")
    if form_now == "compiled" and spec is not None and spec.origin is not None:
        said = re.search(
            rb"GCC: \([^)]*\) [\d.]+|clang version [\w.+~-]+", Path(spec.origin).read_bytes()
        )
        compiler = "unknown" if said is None else said[0].decode()
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {
        "form": form_now,
        "environment": {
            "python": f"{platform.python_implementation()} {sys.version} {platform.machine()}".replace(
                "\n", ""
            ),
            "compiler": compiler,
            "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        },
        "libraries": libraries,
    }


def _ask(*words: str) -> str:
    """What a short process of the counted environment prints. Raises Failed: it fails."""
    done = subprocess.run(
        words, cwd=ROOT, env=clean(dict(os.environ)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{words[0]} ends with {done.returncode}:\n{done.stderr.strip()[-4000:]}")
    return done.stdout.strip()


def count(rows: Sequence[str], folder: Path) -> Table:
    """Run the rows under valgrind; profiles stay in `folder`. Raises Failed: this is not the compiled form, or a row fails."""
    ask = (
        "import json; from benchmarks.instructions import described; print(json.dumps(described()))"
    )
    told = json.loads(_ask(sys.executable, "-c", ask))
    if told["form"] != "compiled":
        raise Failed(
            f"Roquette runs {told['form']}; the gate counts the compiled form: make compile (needs a C compiler)"
        )
    library = _library()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("callgrind.out*"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="roquette-instructions-") as store:
        printed = _ask(
            "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no",
            f"--callgrind-out-file={folder}/callgrind.out.%p",
            sys.executable, "-m", "benchmarks.instruction_paths", str(library), store, *rows,
        )  # fmt: skip
    messages = json.loads(printed.splitlines()[-1])
    profiles = [path.read_text(errors="replace") for path in folder.glob("callgrind.out*")]
    libraries = {**told["libraries"], "valgrind": _ask("valgrind", "--version")}
    return Table(told["environment"], libraries, counted_in(profiles, messages))


# The command.


def _parser() -> argparse.ArgumentParser:
    rows = "\n".join(f"  {row:<18}{SEEN[row]}" for row in ROWS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description="Count the instructions a message costs, path by path, under valgrind, in Roquette's compiled form.",
        epilog=f"rows:\n{rows}\n\n{NEEDS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", nargs="+", metavar="NAME", help="count these (default: all)")
    which.add_argument("--quick", action="store_true", help=f"count {', '.join(QUICK)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check",
        action="store_true",
        help="end with 1 if a row is more than 2 %% above what is committed, in the same environment",
    )
    what.add_argument(
        "--write",
        action="store_true",
        help="write the figures to benchmarks/instructions.json, to be committed",
    )
    parser.add_argument(
        "--callgrind",
        type=Path,
        metavar="DIR",
        help="keep the profiles there, one for each row (callgrind_annotate DIR/callgrind.out.N)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    return parser


NEEDS: Final = """It needs valgrind with its headers, a C compiler, and `make compile`. Without valgrind it says so and ends with 0,
unless CI=true. Exit status: 1 when --check finds a row more than 2 % above its committed figure, or there are no
figures; 2 for wrong arguments."""


def run(rows: Sequence[str], profiles: Path | None) -> Table:
    """Count the rows; profiles are kept if there is a place for them. Raises Failed."""
    if profiles is not None:
        return count(rows, profiles.resolve())
    with tempfile.TemporaryDirectory(prefix="roquette-callgrind-") as folder:
        return count(rows, Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = _parser()
    words = parser.parse_args(arguments)
    wanted = QUICK if words.quick else words.rows or ROWS
    if unknown := [row for row in wanted if row not in ROWS]:
        parser.error(f"no row {unknown[0]!r}: there is {', '.join(ROWS)}")
    if may_skip(_has, os.environ):
        print("instructions: skipped, valgrind is missing: apt-get install valgrind")
        return 0
    try:
        if lacking := missing(_has, _header()):
            raise Failed("\n".join(lacking))
        committed = Table.read(TABLE.read_text()) if TABLE.exists() else Table()
        if words.check and not committed.rows:
            raise Failed(f"there is no {TABLE.relative_to(ROOT)}: write it with --write")
        now = run([row for row in ROWS if row in wanted], words.callgrind)
        verdict = judged(committed, now)
        print(program_text(committed, now, verdict) if words.json else shown(committed, now))
        if words.write:
            TABLE.write_text(committed.joined(now).text())
            print(f"written: {TABLE.relative_to(ROOT)}", file=sys.stderr)
    except Failed as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    if words.check and not words.json:
        print("\n".join(verdict.words))
    return 1 if words.check and verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())
