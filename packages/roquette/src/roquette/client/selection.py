"""Selection of the messages of a topic that a consumer wants: tags, or an SQL92 expression over properties.

Brokers leave out what is not wanted, by hashes of tags and as far as they can; here the text decides again.
Apache: FilterAPI, MessageSelector.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from roquette.base.javatypes import java_hash
from roquette.errors import ConfigError, ExpressionError
from roquette.filter.tags import check_length
from roquette.message.message import ReceivedMessage
from roquette.message.properties import encode_properties
from roquette.message.record_layout import StoredRecord
from roquette.wire.bodies import SubscriptionData

if TYPE_CHECKING:
    from roquette.filter.sql_eval import SqlFilter

_SQL_IN_TAGS: Final = re.compile(
    r"[<>=]|\s(and|or|not|in|like|is|between|contains|startswith|endswith)\b", re.IGNORECASE
)


class Sql(NamedTuple):
    """An SQL92 expression over a message's properties; made by `sql`."""

    expression: str


def sql(expression: str) -> Sql:
    """A filter such as `sql("price > 3 AND region IN ('eu', 'us')")`, for `filter=` of a consumer.

    Properties are texts; a comparison with a number reads them as numbers, and what is not one does not match. Tags are
    the property TAGS.

    Raises:
        ConfigError: it is no expression; the words say where.
    """
    if not isinstance(expression, str):
        raise ConfigError(f"sql() takes a text, not {type(expression).__name__}")
    try:
        _compiled(expression)
    except ExpressionError as error:
        raise ConfigError(f"filter {expression!r} is no SQL92 expression: {error}") from None
    return Sql(expression)


def _compiled(expression: str) -> "SqlFilter":
    """Raises ExpressionError. The language is loaded by whoever uses it."""
    from roquette.filter.sql_compile import compile_sql

    return compile_sql(expression)


Selection = str | Sql
"""What is wanted of a topic: tags as `*` or `a || b`, or an expression."""


def check_selection(topic: str, wanted: object) -> Selection:
    """Raises ConfigError: it is neither tags nor an expression."""
    if isinstance(wanted, Sql):
        return wanted
    if not isinstance(wanted, str):
        raise ConfigError(f"tags={wanted!r} of topic {topic} are no str, such as '*' or 'a || b'")
    try:
        check_length(wanted)
    except ExpressionError as error:
        raise ConfigError(f"tags of topic {topic}: {error}") from None
    if _SQL_IN_TAGS.search(wanted):
        raise ConfigError(
            f"tags={wanted!r} of topic {topic} is an expression, not a list of tags: pass filter=roquette.sql({wanted!r})"
        )
    return wanted


def subscription(topic: str, wanted: Selection, now_ms: int) -> SubscriptionData:
    """The selection as brokers want it (FilterAPI.build, buildSubscriptionData)."""
    if isinstance(wanted, Sql):
        return SubscriptionData(
            topic=topic,
            sub_string=wanted.expression,
            sub_version=now_ms,
            expression_type="SQL92",
        )
    words = [word.strip() for word in wanted.split("||")]
    tags = [word for word in words if word] if wanted.strip() not in ("", "*") else []
    return SubscriptionData(
        topic=topic,
        sub_string=wanted if tags else "*",
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
        sub_version=now_ms,
        expression_type="TAG",
    )


Matcher = Callable[[StoredRecord, ReceivedMessage], bool]


def matcher(wanted: SubscriptionData) -> Matcher | None:
    """Return the test of a message that a broker gave: True when it is wanted; None: every one is."""
    if wanted.expression_type == "SQL92":
        chosen = _compiled(wanted.sub_string)
        return lambda record, message: chosen.matches(record.properties.encode())
    if not wanted.tags_set:
        return None
    tags = frozenset(wanted.tags_set)
    return lambda record, message: message.tag in tags


def wants(wanted: SubscriptionData, message: ReceivedMessage) -> bool | None:
    """Return True when a subscription lets a stored message through; None: its expression cannot be read."""
    if wanted.expression_type == "SQL92":
        try:
            return _compiled(wanted.sub_string).matches(
                encode_properties(message.properties).encode()
            )
        except ExpressionError:
            return None
    return not wanted.tags_set or message.tag in wanted.tags_set
