"""One run from options to exit status: session, signals, report.html, summary.json."""

import contextlib
import json
import logging
import os
import platform
import signal
import threading
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

from roquette.base.clock import Clock, SystemClock
from roquette.base.files import Files, OsFiles
from roquette.errors import ConfigError, RoquetteError
from roquette_spark.errors import explain
from roquette_spark.pipelines.kit.frame import Job, Pipeline, PipelineError, Progress, Quiet, Result
from roquette_spark.pipelines.kit.options import PipelineOptions, shown_options
from roquette_spark.pipelines.kit.report import render
from roquette_spark.pipelines.kit.session import open_session, threads_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT, SUMMARY, LOG = "report.html", "summary.json", "spark.log"
RESULTS = (REPORT, "certificate.json", "exceptions.jsonl")  # what a run replaces


def run_pipeline(
    pipeline: Pipeline[Any],
    options: PipelineOptions,
    *,
    directory: str = "",
    progress: Progress | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Result:
    """Run it, write its report and summary, and stop the Spark that it started.

    Raises:
        RoquetteError: it cannot go on; the text is one line. summary.json says so, too.
    """
    files, clock = files or OsFiles(), clock or SystemClock()
    directory = directory or options.report or free_directory(pipeline.name, files)
    check_report(directory)
    files.make_dirs(directory)
    for name in RESULTS:  # what an earlier run has found does not stand for this one
        files.remove(os.path.join(directory, name))
    session = _Session(pipeline, options, os.path.join(directory, LOG))
    job = Job(
        directory=directory,
        open_spark=session.open,
        clock=clock,
        files=files,
        progress=progress or Quiet(),
    )
    with _signals(job.stop):
        return _run(pipeline, options, job, session)


def _run(
    pipeline: Pipeline[Any], options: PipelineOptions, job: Job, session: "_Session"
) -> Result:
    begin_ms = job.clock.now_ms()
    try:
        result = pipeline.run(options, job)
    except KeyboardInterrupt:
        _write_summary(job, pipeline, options, begin_ms, {"ok": False, "error": "interrupted"})
        raise
    except Exception as error:
        line = explain(error)
        _write_summary(job, pipeline, options, begin_ms, {"ok": False, "error": line})
        if isinstance(error, RoquetteError) and " ".join(str(error).split()) == line:
            raise
        log = os.path.join(job.directory, LOG)
        detail = "" if session.spark is None else f" (details: {log})"
        raise PipelineError(line + detail) from error
    finally:
        session.close()
    facts = {"ok": result.ok, "stopped": job.stop.is_set(), "result": result.summary}
    _write_summary(job, pipeline, options, begin_ms, facts)
    page = render(result.report).encode()
    job.files.write_atomic(os.path.join(job.directory, REPORT), page, keep_backup=False)
    return result


def check_report(directory: str) -> None:
    """A report may replace an earlier one, and nothing else.

    Raises:
        ConfigError: it is not a directory, or has files with our names that no run of ours has written.
    """
    summary, what = os.path.join(directory, SUMMARY), ""
    if os.path.lexists(directory) and not os.path.isdir(directory):
        what = "is no directory"
    elif os.path.lexists(summary):
        if not _is_summary(summary):
            what = f"has a {SUMMARY} that no pipeline has written"
    else:
        found = [name for name in RESULTS if os.path.lexists(os.path.join(directory, name))]
        what = f"has a {found[0]} that no pipeline has written" if found else ""
    if what:
        raise ConfigError(f"--report {directory} {what}: nothing was changed there; give another")


def _is_summary(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"pipeline", "began_ms"} <= found.keys()


def free_directory(name: str, files: Files) -> str:
    """The next pipeline-output/NAME-NNN that does not exist."""
    number = 1
    while files.exists(path := os.path.join("pipeline-output", f"{name}-{number:03}")):
        number += 1
    return path


class _Session:
    """Starts Spark at the first call, and ends only what it started."""

    def __init__(self, pipeline: Pipeline[Any], options: PipelineOptions, log_path: str) -> None:
        self._pipeline = pipeline
        self._options = options
        self._log_path = log_path
        self.spark: SparkSession | None = None
        self._own = False
        self._handler: logging.Handler | None = None

    def open(self) -> "SparkSession":
        if self.spark is None:
            from pyspark.sql import SparkSession

            self._own = SparkSession.getActiveSession() is None
            handler = signal.getsignal(signal.SIGINT)
            self.spark = open_session(
                f"roquette-{self._pipeline.name}",
                self._options.master,
                self._options.spark_conf,
                self._log_path,
                jvm_plans_only=self._pipeline.jvm_plans_only,
            )
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # PySpark has put its own there
            if self._own:
                self._handler = threads_to(self._log_path, self.spark)
        return self.spark

    def close(self) -> None:
        if self.spark is None or not self._own:
            return
        try:
            with contextlib.suppress(OSError):  # its JVM was killed: there is nothing to stop
                self.spark.stop()
        finally:
            if self._handler is not None:
                logging.getLogger().removeHandler(self._handler)
                self._handler.close()


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks the run to end, the second ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_summary(
    job: Job,
    pipeline: Pipeline[Any],
    options: PipelineOptions,
    begin_ms: int,
    facts: dict[str, Any],
) -> None:
    end_ms = job.clock.now_ms()
    summary = {
        "pipeline": pipeline.name,
        "began_ms": begin_ms,
        "ended_ms": end_ms,
        "seconds": round((end_ms - begin_ms) / 1000, 1),
        **facts,
        "options": shown_options(options),
        "versions": versions(),
    }
    text = json.dumps(summary, indent=2, default=str) + "\n"
    job.files.write_atomic(os.path.join(job.directory, SUMMARY), text.encode(), keep_backup=False)


def versions() -> dict[str, str]:
    """Of Python and of what a pipeline stands on."""
    found = {"python": platform.python_version()}
    for name in ("roquette", "pyspark", "pyarrow", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
