"""What is asked of every request's body, and of the clients that requests are forwarded to."""

from typing import Final, TypeVar

from roquette.errors import Refused, RemoteProtocolError
from roquette.wire.codes import ResponseCode, version_text
from roquette.wire.json_body import MAX_REQUEST, decode_request_body

T = TypeVar("T")

MAX_LISTED: Final = 1_000  # topics or groups created by one request
RESET_SINCE: Final = 28  # V3_0_7_SNAPSHOT: older clients know neither 220 nor 221


def check_count(count: int, what: str) -> None:
    """Raise Refused when one request asks for more than is done in one turn."""
    if count > MAX_LISTED:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{count} {what} in one request, {MAX_LISTED} are allowed: send several",
        )


def decode_request(kind: type[T], body: bytes, most: int = MAX_REQUEST) -> T:
    """Read a request's JSON body; a body that is not one is refused, not fatal."""
    try:
        return decode_request_body(kind, body, most)
    except RemoteProtocolError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the body is not a {kind.__name__}: {error}"
        ) from None


def check_resets(version: int) -> None:
    """Raise Refused for a client of a version that knows neither 220 nor 221."""
    if version < RESET_SINCE:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={version_text(version)}",
        )
