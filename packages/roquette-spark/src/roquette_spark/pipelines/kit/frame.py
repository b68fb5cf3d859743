"""Frame of a pipeline: options, a plan, a run that ends in a result; and what a run is given to work with."""

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from roquette.base.clock import Clock
from roquette.base.files import Files
from roquette.base.options import (
    HIDDEN,
    Option,
    OptionKind,
    OptionReader,
    option,
    options_of,
    parse_duration,
    without_password,
    without_secret,
)
from roquette.errors import ConfigError, RoquetteError
from roquette_spark.pipelines.kit.lineage import Dataset
from roquette_spark.pipelines.kit.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Options of a pipeline: one dataclass, filled from flags, then from a YAML or JSON file, then from defaults.


T = TypeVar("T")

DEFAULT_NAME_SERVERS = "127.0.0.1:9876"
KEY_VALUE: Final = "KEY=VALUE"


def _span(text: str) -> str:
    if text[-1:].isdigit():
        raise ValueError
    parse_duration(text)
    return text


SPAN: Final = OptionKind(wanted="a time such as 30m, 24h or 7d", parse=_span)
"""Times that `parse_duration` reads; they stay texts, since reports show them as they are given."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options that every pipeline has."""

    namesrv: str = option(
        DEFAULT_NAME_SERVERS,
        "Name servers; default is $NAMESRV_ADDR, else 127.0.0.1:9876.",
        metavar='"NS1;NS2"',
    )
    report: str = option(
        "",
        "Directory for report.html, summary.json and spark.log; default is the next free "
        "pipeline-output/NAME-NNN.",
        metavar="DIR",
    )
    lineage: str = option(
        "",
        "Where OpenLineage's events of the run go; default is what OPENLINEAGE_URL or openlineage.yml says, else none are sent.",
        metavar="URL",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions(RunOptions):
    """Options of pipelines that run on Spark."""

    master: str = option(
        "local[*]", "Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://...", metavar="URL"
    )
    spark_conf: tuple[str, ...] = option(
        (), "A setting of Spark; may be repeated.", metavar=KEY_VALUE, split=False
    )


_READER: Final = OptionReader(
    names=lambda option: (option.field,),
    normal=lambda name: name.replace("-", "_"),
    shown=lambda option: option.flag,
    missing=lambda option: f" (or {option.field}: in the file of --config)",
)


def load_options(
    cls: type[T], flags: Mapping[str, Any], file: Mapping[str, Any], *, where: str
) -> T:
    """An instance from flags (None is not given) over a file's values over defaults.

    Args:
        where: the pipeline's name, for messages.

    Raises:
        ConfigError: an option is unknown, missing, or not of its kind: which, and what to do.
    """
    values = _READER.values(cls, file, where, place=" in the file")
    return _READER.build(cls, values | _READER.values(cls, flags, where), where)


def read_options_file(path: str, files: Files) -> dict[str, Any]:
    """The options of a YAML or (by its name) JSON file.

    Raises:
        ConfigError: it cannot be read, or is no mapping of names to values.
    """
    try:
        text = files.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} of --config cannot be read: {error}") from None
    try:
        found = json.loads(text) if path.endswith(".json") else _yaml(text)
    except ValueError as error:
        raise ConfigError(f"the file {path} is malformed: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the file {path} has no lines of the form option: value")
    return found


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            'a YAML file needs PyYAML: pip install "roquette[spark]", or write the file as JSON'
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def shown_options(options: Any) -> dict[str, Any]:
    """Options for people's eyes: secrets replaced, those in KEY=VALUE words and in addresses among them."""
    return {
        known.field: _shown(known, getattr(options, known.field))
        for known in options_of(type(options)).values()
    }


def _shown(known: Option, value: Any) -> Any:
    if known.secret:
        return value and HIDDEN
    if isinstance(value, tuple):
        return tuple(_shown(known, each) for each in value)
    if not isinstance(value, str):
        return value
    return without_secret(value) if known.metavar == KEY_VALUE else without_password(value)


O = TypeVar("O", bound=RunOptions)  # noqa: E741


class PipelineError(RoquetteError):
    """A pipeline cannot go on: what, where, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of what a run would do, found out without Spark: lines for people."""

    reads: Sequence[str]
    writes: Sequence[str]
    notes: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Result:
    """Result of a run.

    Attributes:
        ok: False means that a check failed: the command ends with status 1.
        summary: numbers and words for programs; becomes summary.json.
        report: for people; becomes report.html.
        last_line: what the terminal says at the end.
        status: of the command, if `ok`: 0, or BAD_MESSAGES when messages of this run could not be read.
        reads, writes: for lineage; if it reads nothing here, the option `topics` says what was read.
    """

    BAD_MESSAGES: ClassVar = 3

    ok: bool
    summary: dict[str, Any]
    report: Report
    last_line: str = ""
    status: int = 0
    reads: Sequence[Dataset] = ()
    writes: Sequence[Dataset] = ()


class Progress:
    """How far a run is; this one shows nothing: for calls from Python."""

    def step(self, text: str) -> None:
        """A new step begins; the one before is done."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """`done` of `total` (None if unknown) units of this step."""

    def say(self, text: str) -> None:
        """A fact that stays on the screen."""


@dataclass(slots=True, kw_only=True)
class Job:
    """Things that a run works with.

    Attributes:
        directory: where report, summary and log go; pipelines may add files.
        open_spark: starts the session, at its first call; later calls give the same one.
        stop: set when the run is asked to end (SIGINT, SIGTERM); the run then ends at its next step.
    """

    directory: str
    open_spark: "Callable[[], SparkSession]"
    clock: Clock
    files: Files
    progress: Progress = field(default_factory=Progress)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Generic[O]):
    """One verb of `roquette pipeline`.

    Attributes:
        help: its sentences for --help; the first line stands in the list of verbs.
        plan: asks and says what a run would do; starts no Spark and writes nothing.
        run: does it. Raises RoquetteError, or what Spark raises, when it cannot go on; running the same
            command again goes on where it stopped.
        jvm_plans_only: its rows are handled in Spark's Python workers; none passes through the JVM.
    """

    name: str
    help: str
    options: type[O]
    plan: Callable[[O], Plan]
    run: Callable[[O, Job], Result]
    jvm_plans_only: bool = False
