"""Which topics an archive takes: those that are named, and those that a pattern matches."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roquette.base.quantities import counted
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette_spark.options import read_options
from roquette_spark.pipelines.archive.options import ArchiveOptions, stream_root, table_root
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.kit.topics import checkpoint_offsets, stream_options
from roquette_spark.pipelines.tables.streamed_table import position_files
from roquette_spark.pipelines.tables.table_place import CHECKPOINT, SHARED_SETTING
from roquette_spark.source.positions import matching_topics
from roquette_spark.source.queues import BlockingQueueReader, open_reader
from roquette_spark.source.topic_patterns import closed_pattern, why_left_out

_SHOWN = 10  # names in a line
_NOTHING = "(?!)"  # matches no name


@dataclass(frozen=True, slots=True)
class Choice:
    """What to read.

    Attributes:
        own: topics that have a stream each.
        shared: topics of the folder's stream.
        pattern: matches `shared`, and what may come to that stream while it runs; "" where there is no such stream.
        notes: which were taken, and which not and why, for people.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...] = ()
    pattern: str = ""
    notes: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """All of them."""
        return self.own + self.shared


def choose_topics(options: ArchiveOptions) -> Choice:
    """Asks a name server where there is a pattern.

    A table goes on with the stream it was begun with. The folder's stream goes on with all topics it has begun.

    Raises:
        ConfigError: nothing matches, or no name server answers.
    """
    named = tuple(dict.fromkeys(options.topics))
    begun = _begun(options)
    shared = {topic: _is_shared(options, topic, begun) for topic in named}
    if not options.topics_pattern and not any(shared.values()):
        return Choice(named)
    pattern = _for_source(options.topics_pattern)
    reader = _reader(options, pattern)
    there = _topics(reader, options)
    found = [topic for topic in matching_topics(there, pattern) if _readable(reader, topic)]
    for topic in found:
        shared[topic] = _is_shared(options, topic, begun, new=True)
    notes = []
    if options.topics_pattern:
        if not found:
            raise ConfigError(
                f"archive: no topic at {options.namesrv} matches --topics-pattern {options.topics_pattern}"
            )
        notes += [f"matched by --topics-pattern: {_listed(found)}"]
        notes += _left_out(options, there, found)
    more = sorted(set(begun) - set(named) - set(found))
    if more:
        notes.append(f"topics that this folder's stream has begun go on, too: {_listed(more)}")
    gone = [topic for topic in more if not _readable(reader, topic)]
    own = tuple(topic for topic, is_shared in shared.items() if not is_shared)
    joint = {topic for topic, is_shared in shared.items() if is_shared}
    by_name = sorted((joint - set(found)) | set(more))
    whole = "|".join([_without(pattern, own), *(re.escape(topic) for topic in by_name)])
    return Choice(own, tuple(sorted((joint | set(more)) - set(gone))), whole, tuple(notes))


def stream_positions(options: ArchiveOptions) -> TableFiles:
    """Where the position of the folder's stream is."""
    return position_files(TableFiles(stream_root(options)), options.checkpoints)


def _begun(options: ArchiveOptions) -> Mapping[str, object]:
    return checkpoint_offsets(stream_positions(options), CHECKPOINT)


def _is_shared(
    options: ArchiveOptions, topic: str, begun: Mapping[str, object], *, new: bool = False
) -> bool:
    """Whether a topic's table is filled by the folder's stream; `new` says it of one that is not there."""
    there = options.tables().open(table_root(options, topic)).snapshot
    return topic in begun or (SHARED_SETTING in there.settings if there.version >= 0 else new)


def _for_source(pattern: str) -> str:
    """The pattern as the source takes it: retries and dead letters only where their prefix is written out.

    Raises:
        ConfigError: it is no regular expression.
    """
    if not pattern:
        return _NOTHING
    try:
        re.compile(pattern)
        re.compile(found := closed_pattern(pattern))
    except re.error as error:
        raise ConfigError(
            f"archive: --topics-pattern {pattern} is no regular expression: {error}"
        ) from None
    return found


def _without(pattern: str, topics: Sequence[str]) -> str:
    names = "|".join(map(re.escape, topics))
    return rf"(?!(?:{names})\Z){pattern}" if topics else pattern


def _reader(options: ArchiveOptions, pattern: str) -> BlockingQueueReader:
    return open_reader(read_options({**stream_options(options), "subscribePattern": pattern}))


def _topics(reader: BlockingQueueReader, options: ArchiveOptions) -> list[str]:
    try:
        return reader.topics()
    except ClientError as error:
        raise ConfigError(
            f"archive: no name server answers at {options.namesrv}: {error}"
        ) from None


def _readable(reader: BlockingQueueReader, topic: str) -> bool:
    try:
        return bool(reader.queues(topic))
    except RouteNotFound:
        return False


def _left_out(options: ArchiveOptions, there: Sequence[str], found: Sequence[str]) -> list[str]:
    """Topics that were not taken, by reason."""
    matches = re.compile(options.topics_pattern).fullmatch
    left = [topic for topic in there if topic not in found and topic not in options.topics]
    reasons: dict[str, list[str]] = {}
    for topic in filter(matches, left):
        why = why_left_out(topic, options.topics_pattern) or "none of their queues can be read"
        reasons.setdefault(why, []).append(topic)
    lines = [f"not taken ({why}): {_listed(topics)}" for why, topics in sorted(reasons.items())]
    others = len(left) - sum(len(topics) for topics in reasons.values())
    if others:
        lines.append(f"{counted(others, 'other topic')} of the cluster not matched")
    return lines


def _listed(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    return ", ".join(topics[:_SHOWN]) + more
