"""Patterns of topics that leave retries and dead letters out unless they name them. Pure."""

from roquette.message.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


def closed_pattern(pattern: str) -> str:
    """A pattern for `subscribePattern` that takes retries and dead letters only where `pattern` says their prefix."""
    closed = "".join(f"(?!{prefix})" for prefix in _PREFIXES if prefix not in pattern)
    return f"{closed}(?:{pattern})"


def why_left_out(topic: str, pattern: str) -> str:
    """Return the reason why `closed_pattern` and the source leave out a topic that `pattern` matches; "" when they do not."""
    if is_system_topic(topic):
        return "topics of the system are taken by --topics only"
    prefix = next((each for each in _PREFIXES if topic.startswith(each)), "")
    return f"the pattern does not say {prefix}" if prefix and prefix not in pattern else ""
