"""Options of `archive`, and the place of a topic's table."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from roquette.base.options import REQUIRED, key_values, option
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.topics import folder_name
from roquette_spark.pipelines.rows.expectations import read_expectations
from roquette_spark.pipelines.tables.table_formats import DELTA, TableOptions
from roquette_spark.registry import Registry

EVOLUTIONS = ("add", "fixed", "fail")
QUARANTINED, MARKED = "quarantine", "mark"


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
    format: str = option(
        "json",
        "What bodies are; connect: JSON with its schema, as Kafka Connect and Debezium write it.",
        choices=forms.FORMATS,
    )
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
        "The table's folders: day, hour (day and hour), or a column of the table (text, whole number, date, boolean) with few values. "
        "With Iceberg also bucket(N, COLUMN), truncate(W, COLUMN), day(COLUMN), hour(COLUMN): readers that look for the column's values skip the others.",
        kind=forms.PARTITION,
        metavar="day|hour|COLUMN|TRANSFORM",
    )
    sort_by: tuple[str, ...] = option(
        (),
        "Put the rows of each row group of a file in order by these columns of the table, so that readers skip what they do "
        "not look for.",
        metavar="COLUMN",
    )
    expect: str = option(
        "",
        "What rows are to be like: a schema of pandera, in YAML (needs roquette[expect]).",
        metavar="FILE",
    )
    expect_action: str = option(
        QUARANTINED,
        "What becomes of rows that are not: quarantine, or mark (they stay, what they do not meet is in the column _unmet).",
        choices=(QUARANTINED, MARKED),
    )
    rename: tuple[str, ...] = option(
        (),
        "A field of bodies (none within another) has a column of another name.",
        metavar="FIELD=COLUMN",
    )
    mask: tuple[str, ...] = option(
        (),
        "This column of bodies is null, and what its field has is nowhere in the tables: the quarantine has no bodies then, "
        "so --keep-body and --from-quarantine are refused.",
        metavar="COLUMN",
    )
    route: tuple[str, ...] = option(
        (),
        "The table of a topic whose whole name REGEX matches is in the folder NAME below --to, with $1 for the first group; "
        "of several the first that matches.",
        metavar="REGEX=NAME",
        split=False,
    )
    keep_body: bool = option(False, "Keep each body as it is, too, as column _body.")
    starting: str = option(
        "earliest",
        "Where a new table begins: earliest, latest, or milliseconds since 1970.",
        metavar="WHERE",
    )
    tags: str = option("*", "Only messages with these tags.", metavar='"A || B"')
    batch: int = option(200_000, "Messages in one batch, at most.", least=1)
    max_rate: int = option(0, "Messages a second, at most; 0 is no limit.", metavar="N")
    compact: bool = option(True, "Join small files of a partition into large ones.")
    target_mb: int = option(128, "Size of a large file.", metavar="MB", least=1)
    small_files: int = option(
        8, "Join when a partition has as many small files.", metavar="N", least=2
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


def check_options(options: ArchiveOptions) -> None:
    """Raises ConfigError for what cannot be right, before anything is asked or started."""
    if not options.topics and not options.topics_pattern:
        raise ConfigError("archive: --topics is required (or --topics-pattern)")
    options.check_listen("archive")
    if options.starting not in ("earliest", "latest") and not options.starting.isdigit():
        raise ConfigError(
            f"archive: --starting {options.starting} is none of earliest, latest, milliseconds since 1970"
        )

    if (options.format == "registry") != bool(options.registry):
        raise ConfigError("archive: --format registry and --registry URL go together")
    if options.format == "raw" and (
        options.max_bad or options.from_quarantine or options.set_aside >= 0 or options.expect
    ):
        raise ConfigError("archive: --format raw takes every message: it has no quarantine")
    for words in _wrong_fields(options):
        raise ConfigError(f"archive: {words}")
    for route in options.route:
        _parsed_route(route)
    if options.table_format == DELTA and forms.Transform.read(options.partition):
        raise ConfigError(
            f"archive: --partition {options.partition} is for --table-format iceberg; with Delta Lake give a column"
        )
    if options.expect:
        read_expectations(options.expect)
    if options.registry:
        Registry(options.registry)
    if options.registry and options.schema:
        raise ConfigError("archive: --schema does not go with --registry, which has the schemas")


def asked_form(options: ArchiveOptions) -> forms.RowForm:
    """The form of a new table's rows, but for its columns. Raises ConfigError for a malformed --rename."""
    return forms.RowForm(
        options.format,
        keep_body=options.keep_body,
        day_of=options.day_of,
        partition=options.partition,
        renames=key_values(options.rename, "archive: --rename"),
        masked=tuple(sorted({name.lower() for name in options.mask})),
    )


def _wrong_fields(options: ArchiveOptions) -> Iterator[str]:
    """What does not go together in --rename, --mask and the options that name columns."""
    form, columns = asked_form(options), set[str]()
    if options.format == "raw" and (form.renames or form.masked):
        yield "--format raw has no columns to --rename or to --mask"
    if form.masked and (options.keep_body or options.from_quarantine):
        yield "--mask goes neither with --keep-body nor with --from-quarantine: no table has bodies then"
    for name, column in form.renames.items():
        columns.add(column.lower())
        if not forms.may_be_column(column, options.partition):
            yield f"--rename {name}={column}: no column of a body can be called {column}"
    if len(columns) < len(options.rename):
        yield "--rename: each field has one column, each column one field"
    transform = forms.Transform.read(options.partition)
    parts = options.partition if transform is None else transform.column
    for name in sorted({options.day_of, parts, *options.sort_by} - forms.NO_FIELDS):
        if name.lower() in form.masked:
            yield f"no days, folders or order can be of {name}, which has no values (--mask)"
        if name in form.renames and name.lower() not in columns:
            yield f"--day-of, --partition, --sort-by: for {name} give its column, {form.renames[name]}"


@cache
def _parsed_route(route: str) -> tuple[re.Pattern[str], str]:
    """The expression, and the name as a template of `re`. Raises ConfigError."""
    pattern, _, name = route.rpartition("=")
    template = re.sub(r"\$(\d)", r"\\g<\1>", name)
    try:
        found = re.compile(pattern)
        found.sub(template, "")
    except re.error as error:
        raise ConfigError(f"archive: --route {route} cannot be used: {error}") from None
    if not pattern or not re.fullmatch(r"(?:[\w%|~!-]|\$\d)+", name, re.ASCII):
        raise ConfigError(
            f"archive: --route {route} is not REGEX=NAME, with letters, digits, - and _ in NAME, and $1 for a group"
        )
    return found, template


def routed(routes: Sequence[str], topic: str) -> str:
    """The folder of a topic's table. Raises ConfigError for a route that is none, or leaves nothing of a name."""
    for pattern, template in map(_parsed_route, routes):
        if found := pattern.fullmatch(topic):
            if not (name := found.expand(template)):
                raise ConfigError(f"archive: --route leaves topic {topic} without a name")
            return folder_name(name)
    return folder_name(topic)


def table_root(options: ArchiveOptions, topic: str) -> str:
    return f"{options.to}/{routed(options.route, topic)}"


def stream_root(options: ArchiveOptions) -> str:
    """Address of the folder's stream; no topic's name has a dot."""
    return f"{options.to}/_roquette.stream"
