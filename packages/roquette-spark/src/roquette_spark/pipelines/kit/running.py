"""One run from options to exit status: session, signals, report.html, summary.json."""

import contextlib
import json
import logging
import os
import platform
import signal
import sys
import tempfile
import threading
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import roquette
import roquette_spark
from roquette.base.clock import Clock, SystemClock
from roquette.base.files import Files, OsFiles
from roquette.base.options import key_values
from roquette.errors import ConfigError, RoquetteError
from roquette_spark.local.jdk import LOOPBACK, PLAIN_SETTINGS, begin_session, spark_environment
from roquette_spark.pipelines.kit.frame import (
    Job,
    Pipeline,
    PipelineError,
    PipelineOptions,
    Progress,
    Result,
    RunOptions,
    shown_options,
)
from roquette_spark.pipelines.kit.lineage import Lineage, topic_dataset
from roquette_spark.pipelines.kit.report import render
from roquette_spark.values.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The Spark session of a pipeline: any master, quiet terminal, executors that need nothing of ours installed.


LOCAL_RETRIES = 4  # attempts of a task: by plain local[N] a killed worker would end the run
JVM_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def open_session(
    app: str, master: str, settings: Sequence[str], log_path: str, *, jvm_plans_only: bool = False
) -> "SparkSession":
    """Start Spark. What the JVM and its workers have to say goes to `log_path`.

    Args:
        master: local[N], spark://..., yarn, k8s://...
        settings: KEY=VALUE words; they win over ours.
        jvm_plans_only: no row passes through the JVM (see `local_tuning`).

    Raises:
        ConfigError: no Java, no pyspark, a malformed setting, or Spark Connect.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError('pyspark is not installed: pip install "roquette[spark]"') from None
    active = SparkSession.getActiveSession()
    if master.startswith("sc://") or type(active).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "pipelines write in Spark's Python workers, for which Spark Connect has no means: give --master "
            'local[*] or spark://HOST:PORT. Sources and sinks of format("rocketmq") work there'
        )
    if active is not None:  # a notebook's or a job's own: it is configured already
        return active
    local = master.startswith("local")
    _set_environment(local)
    given = key_values(settings, "--spark-conf")
    tuning = local_tuning(given, os.environ, jvm_plans_only=jvm_plans_only) if local else {}
    conf = {**_defaults(local), **tuning, **given}
    package = None if local else _package_for_others()
    with _stderr_to(log_path), _without_sigterm():
        session = begin_session(app, _with_retries(master), conf)
    session.sparkContext.setLogLevel("WARN")
    if package is not None:
        ship_package(session, package)
    return session


def _package_for_others() -> Path:
    """Roquette as a zip, before the JVM starts: sources are planned on this machine, too, by the executors' Python."""
    package = package_zip(Path(tempfile.mkdtemp(prefix="roquette-ship-")))
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{package}{os.pathsep}{given}" if given else str(package)
    return package


def _set_environment(local: bool) -> None:
    given = dict(os.environ)
    found = spark_environment(given)
    if (
        not local
    ):  # others connect to this driver, and their Python may lie elsewhere, without PySpark
        for name in ("SPARK_LOCAL_IP", "SPARK_HOME"):
            found.pop(name, None)
        if given.get("PYSPARK_PYTHON"):
            found["PYSPARK_PYTHON"] = given["PYSPARK_PYTHON"]
    os.environ.update(found)


def _defaults(local: bool) -> dict[str, str]:
    """Small jobs finish soon: the usual 200 partitions of a shuffle take minutes on two cores."""
    return {
        **PLAIN_SETTINGS,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2) if local else "32",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # what Delta and others expect
        **(LOOPBACK if local else {}),
    }


def local_tuning(
    given: Mapping[str, str], environ: Mapping[str, str], *, jvm_plans_only: bool
) -> dict[str, str]:
    """Settings for a soon start of a driver that works alone, but for those that the user has chosen anywhere.

    Of the JVM's options all or none are ours: with two garbage collectors named, Java does not start. Its fast compiler
    (C1) alone is enough where no row passes through it; elsewhere the code of the slow one (C2) wins its cost back.
    """
    import pyspark

    home = environ.get("SPARK_HOME") or pyspark.__path__[0]
    file = Path(environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    text = file.read_text(errors="replace") if file.is_file() else ""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    chosen = " ".join([*given, environ.get("PYSPARK_SUBMIT_ARGS", ""), *lines])
    tuning = {} if "spark.ui.enabled" in chosen else {"spark.ui.enabled": "false"}
    names = ("--driver-java-options", *JVM_OPTIONS)
    if not any(name in chosen for name in names) and not any(map(environ.get, _JVM_VARIABLES)):
        fast = " -XX:TieredStopAtLevel=1" if jvm_plans_only else ""
        tuning[JVM_OPTIONS[0]] = f"-XX:+UseSerialGC{fast}"
    return tuning


def _with_retries(master: str) -> str:
    if master == "local":
        return f"local[1,{LOCAL_RETRIES}]"
    if master.startswith("local[") and "," not in master:
        return f"{master.removesuffix(']')},{LOCAL_RETRIES}]"
    return master


@contextlib.contextmanager
def _stderr_to(path: str) -> Iterator[None]:
    """A process started meanwhile has its stderr in the file; ours is as before afterwards."""
    sys.stderr.flush()
    saved = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(log)


def threads_to(path: str, session: "SparkSession") -> logging.Handler | None:
    """Send to the log what the threads of py4j and PySpark say of a JVM that is gone, beside the JVM's own words.

    Returns:
        The handler that `logging` has got, for the caller to remove; None where the application has configured its own.
    """
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:  # a socketserver, which prints the traceback to stderr

        def handle_error(request: object, address: object) -> None:
            with open(path, "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)

        server.handle_error = handle_error
    root = logging.getLogger()
    if root.handlers:
        return None
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    root.addHandler(handler)
    return handler


@contextlib.contextmanager
def _without_sigterm() -> Iterator[None]:
    """A process started meanwhile ignores SIGTERM for ever, as HotSpot does when it finds it ignored.

    Who ends a process group or a service ends Python, which ends the JVM when it has written what it has in hand
    (at the latest by the end of the JVM's stdin). A SIGTERM to us meanwhile is not lost: it waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    number = signal.SIGTERM
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def ship_package(session: "SparkSession", package: Path) -> None:
    """Send the modules of Roquette (`package_zip`) to the executors, which import from it.

    They still need Python with pyarrow, numpy, msgspec and librt: what PySpark with Arrow has, and two small wheels.
    """
    from roquette_spark.commitlog.source import CommitLogDataSource
    from roquette_spark.datasource import RocketmqDataSource
    from roquette_spark.offsets.source import OffsetsDataSource

    session.sparkContext.addPyFile(str(package))
    # Registered by hand, since only such sources take the shipped files along to the workers.
    for source in (RocketmqDataSource, CommitLogDataSource, OffsetsDataSource):
        session.dataSource.register(source)


def package_zip(folder: Path) -> Path:
    """The Python sources of both packages in one zip; executors run them interpreted."""
    path = folder / "roquette_for_executors.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (roquette, roquette_spark):
            root = Path(str(package.__file__)).resolve().parent
            for file in sorted(root.rglob("*.py")):
                archive.write(file, root.name / file.relative_to(root))
    return path


REPORT, SUMMARY, LOG = "report.html", "summary.json", "spark.log"
RESULTS = (REPORT, "certificate.json", "exceptions.jsonl")  # what a run replaces


def run_pipeline(
    pipeline: Pipeline[Any],
    options: RunOptions,
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
        progress=progress or Progress(),
    )
    with _signals(job.stop):
        return _run(pipeline, options, job, session)


def _run(pipeline: Pipeline[Any], options: RunOptions, job: Job, session: "_Session") -> Result:
    begin_ms = job.clock.now_ms()
    lineage = Lineage(pipeline.name, options, job.clock, job.progress.say)
    lineage.send("START")
    try:
        result = pipeline.run(options, job)
    except KeyboardInterrupt:
        lineage.send("ABORT")
        _write_summary(job, pipeline, options, begin_ms, {"ok": False, "error": "interrupted"})
        raise
    except Exception as error:
        line = explain(error)
        lineage.send("FAIL", line)
        _write_summary(job, pipeline, options, begin_ms, {"ok": False, "error": line})
        if isinstance(error, RoquetteError) and " ".join(str(error).split()) == line:
            raise
        log = os.path.join(job.directory, LOG)
        detail = "" if session.spark is None else f" (details: {log})"
        raise PipelineError(line + detail) from error
    finally:
        session.close()
    state, why = ("COMPLETE", "") if result.ok else ("FAIL", result.last_line)
    topics = [topic_dataset(options.namesrv, each) for each in getattr(options, "topics", ())]
    lineage.send(state, why, result.reads or topics, result.writes)
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

    def __init__(self, pipeline: Pipeline[Any], options: RunOptions, log_path: str) -> None:
        self._pipeline = pipeline
        self._options = options
        self._log_path = log_path
        self.spark: SparkSession | None = None
        self._own = False
        self._handler: logging.Handler | None = None

    def open(self) -> "SparkSession":
        if self.spark is None:
            from pyspark.sql import SparkSession

            assert isinstance(self._options, PipelineOptions), self._options
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
        from py4j.protocol import Py4JError

        try:
            self.spark.stop()
        except (OSError, Py4JError):
            # Its JVM was killed, so there is nothing to stop. The handler stays: threads that wait for the JVM say so after us.
            return
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
    options: RunOptions,
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
    found = {"python": platform.python_version()}
    for name in ("roquette", "pyspark", "pyarrow", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
