"""Policy after a failed send: another broker, a fresh route, or an end. Pure."""

from typing import Final

from roquette.errors import BrokerError, ClientClosed, ClientError, Unreachable
from roquette.wire.codes import ResponseCode

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which Java's producer tries another broker (DefaultMQProducer.retryResponseCodes)."""

STALE_ROUTE_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)

_NO_MASTER_CODES: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
    }
)
_PAUSE_MS: Final = 50
_PAUSE_MAX_MS: Final = 400  # a broker that is back is found so soon
PAUSE_LEAST_MS: Final = 20
_NO_MASTER_WORDS: Final = ("slave", "the master is ", "no master is known", "not the master")


def broker_error(code: int, remark: str | None, address: str) -> BrokerError:
    """The error an answer means, with its two flags."""
    return BrokerError(
        code,
        remark or "",
        address=address,
        retriable=code in RETRY_CODES,
        stale_route=code in STALE_ROUTE_CODES or _says_no_master(code, remark),
    )


def _says_no_master(code: int, remark: str | None) -> bool:
    text = (remark or "").lower()
    return code in _NO_MASTER_CODES and any(words in text for words in _NO_MASTER_WORDS)


def was_not_taken(error: ClientError) -> bool:
    """Return True when the broker was not there, or is no master: nothing was stored, and it is no attempt."""
    return isinstance(error, Unreachable) or (
        isinstance(error, BrokerError) and _says_no_master(error.code, str(error))
    )


def pause_ms(failures: int, left_ms: int, jitter: float) -> int:
    """Before a broker that has failed is tried again: longer after each failure, less near the end of the time.

    Args:
        jitter: 0..1, so that senders do not come back together.
    """
    pause = min(_PAUSE_MAX_MS, _PAUSE_MS << min(failures - 1, 10)) * (0.5 + jitter / 2)
    return max(PAUSE_LEAST_MS, min(int(pause), left_ms // 2))


def may_retry(error: ClientError, attempt: int, attempts: int, left_ms: int) -> bool:
    """Return True when attempt number `attempt` (1 is the first) of `attempts` may be followed by another."""
    return (
        error.retriable
        and not isinstance(error, ClientClosed)
        and attempt < attempts
        and left_ms > 0
    )
