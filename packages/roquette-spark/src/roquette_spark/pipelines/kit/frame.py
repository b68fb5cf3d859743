"""What a pipeline is: options, a plan, a run that ends in a result; and what a run is given to work with."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from roquette.base.clock import Clock
from roquette.base.files import Files
from roquette.errors import RoquetteError
from roquette_spark.pipelines.kit.options import PipelineOptions
from roquette_spark.pipelines.kit.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

O = TypeVar("O", bound=PipelineOptions)  # noqa: E741


class PipelineError(RoquetteError):
    """A pipeline cannot go on: what, where, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do, found out without Spark: lines for people."""

    reads: Sequence[str]
    writes: Sequence[str]
    notes: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
        ok: False means that a check failed: the command ends with status 1.
        summary: numbers and words for programs; becomes summary.json.
        report: for people; becomes report.html.
        last_line: what the terminal says at the end.
    """

    ok: bool
    summary: dict[str, Any]
    report: Report
    last_line: str = ""


class Progress(Protocol):
    """Shows how far a run is."""

    def step(self, text: str) -> None:
        """A new step begins; the one before is done."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """`done` of `total` (None if unknown) units of this step."""

    def say(self, text: str) -> None:
        """A fact that stays on the screen."""


class Quiet:
    """Progress that is not shown: for calls from Python."""

    def step(self, text: str) -> None:
        """Nothing."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


@dataclass(slots=True, kw_only=True)
class Job:
    """What a run works with.

    Attributes:
        directory: where report, summary and log go; pipelines may add files.
        open_spark: starts the session, at its first call; later calls give the same one.
        stop: set when the run is asked to end (SIGINT, SIGTERM); the run then ends at its next step.
    """

    directory: str
    open_spark: "Callable[[], SparkSession]"
    clock: Clock
    files: Files
    progress: Progress = field(default_factory=Quiet)
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
