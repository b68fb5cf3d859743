"""`roquette pipeline ingest`: the rows of a database and each change of them into topics, by Debezium.

A table is a topic, an event a message, its key's events in one queue and in order. Each event comes at least once: after a kill some
come again, with the same position in the database's log.
"""

import json
import math
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from roquette.base.files import Files, OsFiles
from roquette.base.options import REQUIRED, counted, option, parse_duration
from roquette.base.property_files import parse_properties
from roquette.client.blocking_client import Client
from roquette.errors import ClientError, ConfigError, MessageIllegal
from roquette.message.message import Message
from roquette_spark.pipelines.ingest.debezium import (
    DEFAULTS,
    HEARTBEAT,
    OFFSETS,
    DatabaseEvent,
    Engine,
)
from roquette_spark.pipelines.kit.frame import SPAN, Job, Pipeline, Plan, Result, RunOptions
from roquette_spark.pipelines.kit.lineage import topic_dataset
from roquette_spark.pipelines.kit.report import Report, ReportTable, Section
from roquette_spark.pipelines.kit.topics import known_topics

LOG = "debezium.log"
_LOOK_S = 0.2
_RETRY_S = (1, 2, 5, 10, 30)  # a broker is away: Debezium waits meanwhile
_LONGEST_KEY = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions(RunOptions):
    """Options of `ingest`."""

    debezium: str = option(
        REQUIRED,
        "Debezium's properties: connector.class, database.hostname, topic.prefix and so on. Topics are called as its tables, with - for "
        "each dot: shop-public-orders.",
        metavar="FILE",
    )
    offsets: str = option(
        "",
        "File that keeps how far it has come, if the properties name no offset.storage; default is the properties' file with .offsets.",
        metavar="FILE",
    )
    idle: str = option(
        "",
        "End when nothing has changed for so long, such as 30s; default is to go on until stopped.",
        metavar="SPAN",
        kind=SPAN,
    )


def topic_of(table: str) -> str:
    """The topic of a table: names of topics have no dots."""
    return re.sub(r"[^%|A-Za-z0-9_-]", "-", table)


def message_of(change: DatabaseEvent) -> Message:
    """An event as a message. It is found by its key's values, where those are words."""
    words: tuple[str, ...] = ()
    if change.key is not None:
        found = json.loads(change.key)
        if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
            found = found["payload"]
        values = found.values() if isinstance(found, dict) else [found]
        word = "|".join(str(value) for value in values)
        words = (word,) if re.fullmatch(r"\S+", word) and len(word) <= _LONGEST_KEY else ()
    topic = topic_of(change.table)
    return Message(topic, change.value.encode(), keys=words, shard_key=change.key or topic)


class Topics:
    """Where events go, and how many went."""

    def __init__(self, client: Client[Any], job: Job) -> None:
        self._client, self._job = client, job
        self._tables: dict[str, str] = {}
        self.sent: Counter[str] = Counter()

    def take(self, changes: list[DatabaseEvent]) -> None:
        """Send events, and wait until the brokers have them.

        Raises:
            ConfigError: two tables would go to one topic.
            ClientError: no broker took them until the run was stopped; MessageIllegal: none would.
        """
        by_topic: dict[str, list[Message]] = {}
        for change in changes:
            message = message_of(change)
            table = self._tables.setdefault(message.topic, change.table)
            if table != change.table:
                raise ConfigError(
                    f"ingest: {table} and {change.table} are both topic {message.topic}: set topic.prefix, or leave one out by table.exclude.list"
                )
            by_topic.setdefault(message.topic, []).append(message)
        for topic, messages in by_topic.items():
            self._send(topic, messages)
            self.sent[topic] += len(messages)
        self._job.progress.update(self.sent.total())

    def _send(self, topic: str, messages: list[Message]) -> None:
        tries = 0
        while True:
            try:
                self._client.send_batch(topic, messages)
                return
            except MessageIllegal as error:
                raise MessageIllegal(
                    f"ingest: an event of {self._tables[topic]}: {error}"
                ) from error
            except ClientError as error:
                wait_s = _RETRY_S[min(tries, len(_RETRY_S) - 1)]
                self._job.progress.say(f"warning: {topic}: {error}; again in {wait_s} s")
                tries += 1
                if self._job.stop.wait(wait_s):
                    raise


def _properties(options: IngestOptions, files: Files) -> dict[str, str]:
    try:
        found = parse_properties(files.read_bytes(options.debezium).decode())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"ingest: --debezium {options.debezium} cannot be read: {error}"
        ) from None
    missing = [name for name in ("connector.class", "topic.prefix") if not found.get(name)]
    if missing:
        raise ConfigError(f"ingest: {options.debezium} has no {', '.join(missing)}")
    if options.offsets and OFFSETS in found:
        raise ConfigError(f"ingest: --offsets and {OFFSETS} of {options.debezium}: give one")
    if not re.fullmatch(r"[1-9]\d*", found.setdefault(HEARTBEAT, DEFAULTS[HEARTBEAT])):
        raise ConfigError(
            f"ingest: {HEARTBEAT} of {options.debezium} is milliseconds above 0: by its heartbeats Debezium says that it reads"
        )
    return found


def _offsets(options: IngestOptions) -> str:
    return options.offsets or options.debezium + ".offsets"


def _database(properties: dict[str, str]) -> str:
    """What is read, in words for people."""
    names = ("database.hostname", "database.port", "database.dbname")
    place = [properties[name] for name in names if name in properties]
    return " ".join([properties["connector.class"].rpartition(".")[2], *place])


def plan(options: IngestOptions) -> Plan:
    """Say what would be read and written."""
    found = _properties(options, OsFiles())
    known_topics(options.namesrv, "ingest")
    kept = found.get(OFFSETS) or _offsets(options)
    return Plan(
        reads=[_database(found)],
        writes=[f"topics {topic_of(found['topic.prefix'] + '.')}... at {options.namesrv}"],
        notes=[
            f"how far it has come is kept by {kept}",
            f"until nothing comes for {options.idle}" if options.idle else "until stopped",
        ],
    )


def run(options: IngestOptions, job: Job) -> Result:
    """Read and send until stopped, or until nothing comes.

    Raises:
        ConfigError: the properties, or a package. PipelineError: Debezium cannot go on. ClientError: as `Topics.take`.
    """
    properties = _properties(options, job.files)
    prefix = topic_of(properties["topic.prefix"] + ".")
    there = [each for each in known_topics(options.namesrv, "ingest") if each.startswith(prefix)]
    begun = OFFSETS in properties or job.files.exists(_offsets(options))
    if there and not begun:
        job.progress.say(
            f"warning: {there[0]} is there, but no run has brought all rows yet: those deleted since an earlier one stay in what is "
            "made of the topics; to be rid of them, begin with topics of another topic.prefix"
        )
    idle_ms = parse_duration(options.idle) if options.idle else math.inf
    job.progress.step("starting Debezium" + ("" if begun else ", reading the rows that are there"))
    with Client(options.namesrv, group="roquette-ingest") as client:
        topics = Topics(client, job)
        engine = Engine(
            properties,
            offsets=_offsets(options),
            log=os.path.join(job.directory, LOG),
            files=job.files,
            take=topics.take,
        )
        engine.start()
        enough, follows = idle_ms / int(properties[HEARTBEAT]), False
        while not (engine.ended.is_set() or job.stop.wait(_LOOK_S)):
            if not follows and (follows := engine.follows()):
                job.progress.step("reading changes")
            if engine.quiet > enough:
                break
        engine.close()
    return _result(options.namesrv, _database(properties), topics.sent)


def _result(namesrv: str, database: str, sent: Counter[str]) -> Result:
    words = f"{counted(sent.total(), 'event')} to {counted(len(sent), 'topic')}"
    table = ReportTable(["topic", "events"], sorted(sent.items()))
    return Result(
        ok=True,
        summary={"events": sent.total(), "topics": dict(sorted(sent.items()))},
        report=Report(
            "Changes of a database",
            f"{database}: {words}",
            sections=[Section("Topics", "Where the events of this run went.", [table])],
        ),
        last_line=words,
        writes=[topic_dataset(namesrv, topic, count) for topic, count in sorted(sent.items())],
    )


PIPELINE = Pipeline(
    name="ingest",
    help=(
        "The rows of a database, and each change of them, into topics, by Debezium.\n\n"
        "archive --format connect and current-state --envelope debezium read such topics. Events come at least once."
    ),
    options=IngestOptions,
    plan=plan,
    run=run,
)
