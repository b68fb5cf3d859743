"""Options of `archive`, and the place of a topic's table."""

from dataclasses import dataclass
from typing import Final

from roquette.base.options import REQUIRED, OptionKind, option
from roquette.errors import ConfigError
from roquette.remoting.settings import LISTEN
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.frame import KEY_VALUE
from roquette_spark.pipelines.kit.topics import folder_name
from roquette_spark.pipelines.tables.table_formats import TableOptions
from roquette_spark.registry import Registry
from roquette_spark.values.options import READER_GROUP

EVOLUTIONS = ("add", "fixed", "fail")


def _limit(text: str) -> str:
    number = float(text.removesuffix("%"))
    if not number >= 0 or not (text.endswith("%") or text.isdigit()):
        raise ValueError
    return text


LIMIT: Final = OptionKind(wanted="a number such as 100, or a share such as 0.5%", parse=_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions(TableOptions):
    """Options of `archive`."""

    topics: tuple[str, ...] = option(
        (),
        "Topics, with commas or repeated; dead letters (%DLQ%GROUP) and topics of the system, too. Each has a stream of its own.",
        metavar="TOPIC",
    )
    topics_pattern: str = option(
        "",
        "Also topics whose whole name this regular expression matches, all of them by one stream; retries and dead "
        "letters only if it says %RETRY% or %DLQ%, topics of the system never.",
        metavar="REGEX",
    )
    to: str = option(REQUIRED, "Directory or address (s3a://...) for the tables.", metavar="DIR")
    checkpoints: str = option(
        "",
        "Where Spark keeps how far it has read; default is in each table's folder. A local directory, for tables in an "
        "object store, does without Hadoop's jars.",
        metavar="DIR",
    )
    format: str = option("json", "What bodies are.", choices=forms.FORMATS)
    schema: str = option(
        "",
        'Columns of a JSON body, such as "id int, name string"; default is inferred once from a sample and '
        "kept. For Avro: the file of the writer's schema.",
        metavar="COLUMNS",
    )
    registry: str = option(
        "",
        "With --format registry: the address of a schema registry with Confluent's interface. Each body says its schema; "
        "Avro, JSON Schema and Protobuf are read.",
        metavar="URL",
    )
    registry_subject: str = option(
        "{topic}-value",
        "Whose newest schema gives a new table its columns.",
        metavar="SUBJECT",
    )
    schema_evolution: str = option(
        "add",
        "Fields of JSON bodies without a column, and whole numbers too large for theirs: add (columns and wider "
        "types), fixed (such fields stay in _rescued), fail (end before the batch is written).",
        choices=EVOLUTIONS,
    )
    day_of: str = option(
        "store_timestamp",
        "Where day and hour are from: store_timestamp, born_timestamp, or a column of the body.",
        metavar="COLUMN",
    )
    partition: str = option(
        forms.BY_DAY,
        "The table's folders: day, hour (day and hour), or a column of the table (text, whole number, date, boolean) with few values.",
        metavar="day|hour|COLUMN",
    )
    sort_by: tuple[str, ...] = option(
        (),
        "Put the rows of each row group of a file in order by these columns of the table, so that readers skip what they do "
        "not look for.",
        metavar="COLUMN",
    )
    keep_body: bool = option(False, "Keep each body as it is, too, as column _body.")
    max_bad: str = option(
        "",
        "End before a batch with which more of a topic's messages of this run are bad: a number, or a share of them such as "
        "0.5%.",
        metavar="N|P%",
        kind=LIMIT,
    )
    from_quarantine: bool = option(
        False,
        "First read the messages in quarantine again: those that can be read now, after a mend, move to their table.",
    )
    set_aside: int = option(
        -1,
        "Put the messages of this batch into the quarantine as they are: a way past a batch that ends each run.",
        metavar="BATCH",
    )
    starting: str = option(
        "earliest",
        "Where a new table begins: earliest, latest, or milliseconds since 1970.",
        metavar="WHERE",
    )
    tags: str = option("*", "Only messages with these tags.", metavar='"A || B"')
    follow: bool = option(False, "Go on with what comes, until stopped.")
    interval_s: int = option(
        60, "With --follow: seconds between batches.", metavar="SECONDS", least=1
    )
    group: str = option(
        "",
        "Consumer group that is told how far the tables are, for group lag, topic resize, broker drain and doctor; default is a name of "
        "its own.",
        kind=READER_GROUP,
    )
    metrics_listen: str = option(
        "",
        "With --follow: HOST:PORT of a port for /metrics, /healthz and /readyz, which answers everybody who reaches it.",
        kind=LISTEN,
    )
    batch: int = option(200_000, "Messages in one batch, at most.", least=1)
    max_rate: int = option(0, "Messages a second, at most; 0 is no limit.", metavar="N")
    sample: int = option(10_000, "Messages looked at to infer a schema.", least=1)
    compact: bool = option(True, "Join small files of a partition into large ones.")
    target_mb: int = option(128, "Size of a large file.", metavar="MB", least=1)
    small_files: int = option(
        8, "Join when a partition has as many small files.", metavar="N", least=2
    )
    keep_replaced_minutes: int = option(
        60,
        "How long files stay that compaction replaced, for readers that still use them.",
        metavar="MINUTES",
    )
    keep_versions: int = option(
        1,
        "So many of a table's newest versions stay readable (time travel), however long ago their files were replaced.",
        metavar="N",
        least=1,
    )
    from_certificate: bool = option(
        False,
        "If checkpoints are gone: begin others after what the tables have of each queue, by their certificates.",
    )
    check: bool = option(True, "At the end, compare the tables with the topics.")
    source_option: tuple[str, ...] = option(
        (),
        "An option of the source, such as failOnDataLoss=false; may be repeated.",
        metavar=KEY_VALUE,
        split=False,
    )


def check_options(options: ArchiveOptions) -> None:
    """Raises ConfigError for what cannot be right, before anything is asked or started."""
    if not options.topics and not options.topics_pattern:
        raise ConfigError("archive: --topics is required (or --topics-pattern)")
    if options.metrics_listen and not options.follow:
        raise ConfigError("archive: --metrics-listen is for --follow: a run that ends has a report")
    if options.starting not in ("earliest", "latest") and not options.starting.isdigit():
        raise ConfigError(
            f"archive: --starting {options.starting} is none of earliest, latest, milliseconds since 1970"
        )

    if (options.format == "registry") != bool(options.registry):
        raise ConfigError("archive: --format registry and --registry URL go together")
    if options.format == "raw" and (
        options.max_bad or options.from_quarantine or options.set_aside >= 0
    ):
        raise ConfigError("archive: --format raw takes every message: it has no quarantine")
    if options.registry:
        Registry(options.registry)
    if options.registry and options.schema:
        raise ConfigError("archive: --schema does not go with --registry, which has the schemas")


def table_root(options: ArchiveOptions, topic: str) -> str:
    return f"{options.to}/{folder_name(topic)}"


def stream_root(options: ArchiveOptions) -> str:
    """Address of the folder's stream; no topic's name has a dot."""
    return f"{options.to}/_roquette.stream"
