"""Tag expressions: `*` or `A || B`, compared by Java's hash of the tag (Apache: FilterAPI.buildSubscriptionData)."""

from roquette.base.javatypes import java_hash
from roquette.errors import ExpressionError


def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Hashes of the tags an expression lets through; None lets every message through.

    Words are trimmed as Java's String.trim does; an expression of nothing but separators and blanks names no
    tag and lets nothing through, as in Apache, unless it is one without any word at all.

    Raises:
        ExpressionError: only separators ("||").
    """
    if not expression or expression == "*":
        return None
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
