"""Compiled subscriptions: hashes of tags, or a compiled SQL92 selector. HOT.

Pull and POP build a filter from an expression, give its `codes` and `predicate` to the store, and keep both
with what they hold. Apache: ExpressionMessageFilter, ExpressionForRetryMessageFilter, ConsumerFilterManager.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from roquette.errors import ExpressionError
from roquette.filter.tags import tag_codes
from roquette.message.properties import property_value
from roquette.store.queue_read import MATCH_ALL, RecordFilter

TAG: Final = "TAG"
SQL92: Final = "SQL92"
TAG_EXPRESSIONS: Final = 10_000  # tag expressions kept with their hashes,
TAG_CHARACTERS: Final = 1_024  # none longer than that
SQL_EXPRESSIONS: Final = 1_000  # selectors kept, compiled or with what is wrong with them,
SQL_CHARACTERS: Final = 1 << 20  # and what they may amount to
RETRY_WEIGHT: Final = 64  # the selectors behind it are not known beforehand


def is_tag_type(kind: str | None) -> bool:
    """Return True for an expression type that means tags: none given, or TAG (ExpressionType.isTagType)."""
    return kind is None or kind == TAG or not kind


class SubscriptionFilters:
    """Builds filters; equal expressions share one. Bounded: the oldest selectors go."""

    __slots__ = ("_characters", "_sql", "_tags")

    def __init__(self) -> None:
        self._tags: dict[str, RecordFilter] = {}
        self._sql: dict[str, RecordFilter | str] = {}
        self._characters: int = 0

    def build(self, expression: str | None, kind: str | None) -> RecordFilter:
        """The filter of an expression (FilterAPI.build, ConsumerFilterManager.build).

        Raises:
            ExpressionError: it is not one of its kind, or the kind is unknown.
        """
        if kind is not None and kind != TAG and kind:
            if kind != SQL92:
                raise ExpressionError(f"no filter of type {kind}")
            return self._build_sql(expression)
        if not expression or expression == "*":
            return MATCH_ALL
        known = self._tags.get(expression)
        if known is None:
            known = RecordFilter(tag_codes(expression))
            if len(self._tags) < TAG_EXPRESSIONS and len(expression) <= TAG_CHARACTERS:
                self._tags[expression] = known
        return known

    def prepare(self, expression: str | None, kind: str | None) -> bool:
        """Compile a selector, right or wrong, to be built later; False when it is known."""
        if not expression or kind != SQL92 or expression in self._sql:
            return False
        with contextlib.suppress(ExpressionError):  # whoever builds it gets the error
            self._build_sql(expression)
        return True

    def _build_sql(self, expression: str | None) -> RecordFilter:
        if not expression:
            raise ExpressionError("the expression is empty")
        known = self._sql.get(expression)
        if known is None:
            from roquette.filter.sql_compile import compile_sql  # few consumers have selectors

            try:
                known = RecordFilter(None, compile_sql(expression))
            except ExpressionError as error:
                known = str(error)
            self._keep(expression, known)
        if isinstance(known, str):
            raise ExpressionError(known)
        return known

    def _keep(self, expression: str, known: RecordFilter | str) -> None:
        size = len(expression)
        if size > SQL_CHARACTERS:
            return
        while self._sql and (
            len(self._sql) >= SQL_EXPRESSIONS or self._characters + size > SQL_CHARACTERS
        ):
            oldest = next(iter(self._sql))
            del self._sql[oldest]
            self._characters -= len(oldest)
        self._sql[expression] = known
        self._characters += size


class RetryPredicate:
    """On a retry topic: each message by the filter its group has for the topic it came from.

    Only with filterSupportRetry (ExpressionForRetryMessageFilter); a topic without selector lets pass.
    """

    __slots__ = ("_find", "_group", "weight")

    def __init__(self, find: Callable[[str, str], RecordFilter | None], group: str) -> None:
        self._find: Callable[[str, str], RecordFilter | None] = find
        self._group: str = group
        self.weight: int = RETRY_WEIGHT

    def matches(self, properties: bytes) -> bool:
        """Ask the filter that the group has for the message's RETRY_TOPIC."""
        topic = property_value(properties.decode("utf-8", "replace"), "RETRY_TOPIC")
        if topic is None:
            return True
        found = self._find(self._group, topic)
        if found is None or found.predicate is None:
            return True
        return found.predicate.matches(properties)
