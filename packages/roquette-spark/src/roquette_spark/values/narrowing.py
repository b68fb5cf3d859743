"""Conditions that narrow a table's ranges before anything is read: option `narrowBy`, and `read_where`, which tests rows too.

Spark's own filter push-down is not used: PySpark 4.2 and 4.3 keep the partitions of a filtered read for later queries of
the same frame that have no filter, which then lack rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from roquette.base.options import OptionKind, Unfit
from roquette.message.message import MessageQueue
from roquette_spark.values.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCK_STEP_MS: Final = 60_000
"""A broker's clock may have been set back by so much: times narrow a range with this margin."""
_COLUMNS: Final = {
    "topic": "a text",
    "broker_name": "a text",
    "queue_id": "a whole number",
    "queue_offset": "a whole number",
    "store_timestamp": "timestamp_millis(N) or TIMESTAMP '...' with a zone",
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*')|(?P<number>-?\d+)|(?P<name>`\w+`|[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>(),]))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOLDS: Final[dict[str, Callable[[Any, tuple[Any, ...]], bool]]] = {
    "in": lambda found, values: found in values,
    "not in": lambda found, values: found not in values,
    "<": lambda found, values: found < values[0],
    "<=": lambda found, values: found <= values[0],
    ">": lambda found, values: found > values[0],
    ">=": lambda found, values: found >= values[0],
}


class TimeSearch(Protocol):
    """Brokers, as far as they are asked: see QueueReader."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with constants; `sign` is a key of what holds: `in`, `not in`, <, <=, > or >=.

    Times are milliseconds since 1970, rounded down.
    """

    column: str
    sign: str
    values: tuple[int, ...] | tuple[str, ...]


def parse_conditions(text: str) -> tuple[Comparison, ...]:
    """Conditions as SQL writes them, joined by AND. Raises Unfit for any other; empty text is none."""
    tokens, place = [], 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            raise Unfit(f"{text[place:].strip()[:30]!r} is not understood")
        tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
        place = found.end()
    return tuple(_Conditions(tokens).parse()) if tokens else ()


class _Conditions:
    """One pass over tokens (kind, text)."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._at = 0

    def parse(self) -> Iterator[Comparison]:
        yield from self._comparison()
        while self._word("and"):
            yield from self._comparison()
        if self._tokens[self._at][0] != "end":
            raise Unfit(
                f"{self._tokens[self._at][1]!r} is not understood: conditions are joined by AND only"
            )

    def _next(self) -> tuple[str, str]:
        self._at += 1
        return self._tokens[min(self._at, len(self._tokens)) - 1]

    def _word(self, *words: str) -> bool:
        """Take these words if they come next."""
        coming = self._tokens[self._at : self._at + len(words)]
        if [text.lower() for _, text in coming] != list(words):
            return False
        self._at += len(words)
        return True

    def _comparison(self) -> Iterator[Comparison]:
        kind, name = self._next()
        column = name.strip("`").lower()
        if kind != "name" or column not in _COLUMNS:
            raise Unfit(f"{name!r} is none of {', '.join(_COLUMNS)}")
        if self._word("between"):
            yield Comparison(column, ">=", (self._value(column),))
            if not self._word("and"):
                raise Unfit("BETWEEN has no AND")
            yield Comparison(column, "<=", (self._value(column),))
        elif self._word("in", "("):
            yield Comparison(column, "in", self._list(column))
        elif self._word("not", "in", "("):
            yield Comparison(column, "not in", self._list(column))
        else:
            _, sign = self._next()
            sign = {"=": "in", "==": "in", "!=": "not in", "<>": "not in"}.get(sign, sign)
            if sign not in _HOLDS:
                raise Unfit(f"{sign!r} after {column} is not understood")
            yield Comparison(column, sign, (self._value(column),))

    def _list(self, column: str) -> tuple[Any, ...]:
        values = [self._value(column)]
        while self._word(","):
            values.append(self._value(column))
        if not self._word(")"):
            raise Unfit("a list has no end")
        return tuple(values)

    def _value(self, column: str) -> Any:
        kind, text = self._next()
        wanted = _COLUMNS[column]
        if column == "store_timestamp" and kind == "name":
            return self._moment(text.lower())
        if kind == "text" and wanted == "a text":
            return text[1:-1]
        if kind == "number" and wanted == "a whole number":
            return int(text)
        raise Unfit(f"{column} is compared with {wanted}, not with {text or 'nothing'}")

    def _moment(self, word: str) -> int:
        if word == "timestamp_millis" and self._word("("):
            kind, text = self._next()
            if kind == "number" and self._word(")"):
                return int(text)
        if word == "timestamp":
            kind, text = self._next()
            try:
                found = datetime.fromisoformat(text[1:-1])
            except ValueError:
                raise Unfit(f"{text} is no time") from None
            if kind == "text" and found.tzinfo is not None:
                return (found - _EPOCH) // timedelta(milliseconds=1)
        raise Unfit(f"store_timestamp is compared with {_COLUMNS['store_timestamp']}")


CONDITIONS: Final = OptionKind(
    wanted="conditions such as queue_id = 0 AND queue_offset < 10", parse=parse_conditions
)


def narrowed(
    reader: TimeSearch, conditions: Sequence[Comparison], start: Offsets, end: Offsets
) -> tuple[Offsets, Offsets]:
    """Ranges without what holds no message that meets the conditions; queues of which nothing is left are not in them."""
    first, last = _span(conditions, "queue_offset")
    since_ms, until_ms = _span(conditions, "store_timestamp")
    begin, until = dict[MessageQueue, int](), dict[MessageQueue, int]()
    for queue, low in start.items():
        low, high = max(low, first), end[queue] if last is None else min(end[queue], last)
        if low >= high or not _may_hold_rows(conditions, queue):
            continue
        if since_ms > CLOCK_STEP_MS:
            low = max(low, reader.offset_by_time(queue, since_ms - CLOCK_STEP_MS))
        if until_ms is not None and low < high:
            # Apache's 4.9 names the nearest message, which may be the one before.
            high = min(high, reader.offset_by_time(queue, max(0, until_ms) + CLOCK_STEP_MS) + 1)
        if low < high:
            begin[queue], until[queue] = low, high
    return begin, until


def _may_hold_rows(conditions: Iterable[Comparison], queue: MessageQueue) -> bool:
    values = {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
    }
    return all(
        _HOLDS[each.sign](values[each.column], each.values)
        for each in conditions
        if each.column in values
    )


def _span(conditions: Iterable[Comparison], column: str) -> tuple[int, int | None]:
    """The first whole number that can meet the conditions, and the one after the last; None: no end.

    A time's milliseconds are rounded down, so the end is one later there.
    """
    low, high = 0, None
    rounded = column == "store_timestamp"
    for each in conditions:
        if each.column != column or each.sign == "not in":
            continue
        least, most = int(min(each.values)), int(max(each.values))
        if each.sign in ("in", ">", ">="):
            low = max(low, least + (each.sign == ">" and not rounded))
        if each.sign in ("in", "<", "<="):
            most += each.sign != "<" or rounded
            high = most if high is None else min(high, most)
    return low, high


def read_where(
    spark: "SparkSession", condition: str, *, schema: str = "", **options: str
) -> "DataFrame":
    """The messages of topics that meet a condition; what cannot meet it is not read.

    Args:
        condition: SQL, as option `narrowBy` takes it.
        schema: the columns, with those of the condition; all if it is empty.
        options: those of `format("rocketmq")`.

    Raises:
        AnalysisException: an option or the condition is wrong; `plain_message` has the line that says what.
    """
    reader = spark.read.format("rocketmq").options(**options, narrowBy=condition)
    return (reader.schema(schema) if schema else reader).load().where(condition)
