"""One line that says what went wrong and what to do, out of what Spark raises: no Java stack, no traceback."""

import re

from roquette.errors import RoquetteError
from roquette.spark.plain_errors import plain_message

# A Python error inside Spark's text: "  roquette.errors.ConfigError: rocketmq: option ..."
_OURS = re.compile(r"^\W*roquette\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
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
        r"Python worker failed to connect back|Python worker did not connect",
        "this machine is too busy to start Spark's workers in time: the same command goes on where it stopped",
    ),
)


def explain(error: BaseException) -> str:
    """The line. Errors of ours are told as they are, those inside Spark's are looked for."""
    text = str(error)
    kind = type(error).__name__
    if isinstance(error, ConnectionError) or kind == "Py4JNetworkError":
        return (
            "Spark's JVM has ended by itself (killed, or out of memory?): the same command goes on "
            "where it stopped"
        )
    if not isinstance(error, RoquetteError):
        told = plain_message(error)
        if told is not None:  # the source has said what to do
            return " ".join(told.split())[:_LIMIT]
        ours = _OURS.findall(text)
        theirs = _PYTHON.findall(text)
        if ours:
            kind, text = ours[-1]
        elif theirs:
            kind, text = theirs[-1]
            text = f"{kind}: {text}"
        else:
            text = _first_line(text) or kind
    line = " ".join(text.split())[:_LIMIT]
    for pattern, advice in _WHAT_TO_DO:
        if re.search(pattern, f"{kind}: {line}") or (
            not isinstance(error, RoquetteError) and re.search(pattern, str(error)[:20_000])
        ):
            return line if advice in line else f"{line.rstrip('.')}: {advice}"
    return line


def _first_line(text: str) -> str:
    """What stands before any stack."""
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith(("at ", "Traceback", "JVM stacktrace", 'File "')):
            return line
    return ""
