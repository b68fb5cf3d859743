"""What a cluster has of some topics, asked without Spark: so that a wrong address or name is told at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roquette.errors import ConfigError
from roquette.spark.source.options import read_options
from roquette.spark.source.queues import open_reader


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue and its offsets; `end` is exclusive."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int


def find_topics(
    namesrv: str, topics: Sequence[str], options: Mapping[str, str] | None = None
) -> list[QueueState]:
    """The queues of topics, sorted.

    Args:
        options: more options of the source, such as access keys.

    Raises:
        ClientError: no name server answers, or a topic does not exist.
    """
    given = {"namesrvAddr": namesrv, "subscribe": ",".join(topics), **(options or {})}
    reader = open_reader(read_options(given))
    queues = [queue for topic in topics for queue in reader.queues(topic)]
    starts, ends = reader.min_offsets(queues), reader.max_offsets(queues)
    return [QueueState(q.topic, q.broker_name, q.queue_id, starts[q], ends[q]) for q in queues]


def describe(states: Iterable[QueueState]) -> list[str]:
    """One line per topic, for plans."""
    found: dict[str, list[QueueState]] = {}
    for state in states:
        found.setdefault(state.topic, []).append(state)
    return [
        f"topic {topic}: {sum(each.end - each.start for each in queues):,} messages in {len(queues)} "
        f"queues on {', '.join(sorted({each.broker_name for each in queues}))}"
        for topic, queues in found.items()
    ]


def folder_name(topic: str) -> str:
    """A topic's name as a folder: of what topics may have, only % and | are changed."""
    return topic.replace("%", "~").replace("|", "!")


def pairs(settings: Iterable[str], flag: str) -> dict[str, str]:
    """KEY=VALUE words as a dict. Raises ConfigError for a word without "="."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{flag} {setting!r} is not of the form key=value")
        found[name.strip()] = value
    return found
