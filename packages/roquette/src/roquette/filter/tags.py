"""Tag expressions: `*` or `A || B`, compared by Java's hash of the tag (Apache: FilterAPI.buildSubscriptionData)."""

from typing import Final

from roquette.base.javatypes import java_hash
from roquette.errors import ExpressionError

MAX_LENGTH: Final = 16_384  # characters of an expression, of either kind; Apache's broker has no bound but the frame's


def check_length(expression: str) -> None:
    """Raise ExpressionError for an expression that is too long to be kept for each who asks by it."""
    if len(expression) > MAX_LENGTH:
        raise ExpressionError(
            f"the expression has {len(expression)} characters, {MAX_LENGTH} are allowed"
        )


def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Hashes of the tags an expression lets through; None lets every message through.

    Words are trimmed as Java's String.trim does; an expression of nothing but separators and blanks names no
    tag and lets nothing through, as in Apache, unless it is one without any word at all.

    Raises:
        ExpressionError: only separators ("||"), or too long.
    """
    if not expression or expression == "*":
        return None
    check_length(expression)
    parts = expression.split("||")
    if not any(parts):  # Java's split drops empty parts at the end: nothing is left
        raise ExpressionError("the tag expression has separators only")
    tags = [trim(part) for part in parts]
    return frozenset([java_hash(tag) for tag in tags if tag])


def trim(text: str) -> str:
    """Java's String.trim: characters up to U+0020 go from both ends."""
    start, end = 0, len(text)
    while start < end and text[start] <= " ":
        start += 1
    while end > start and text[end - 1] <= " ":
        end -= 1
    return text[start:end]
