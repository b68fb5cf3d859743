"""Members of a group, as its brokers say."""

from typing import Final

from roquette.client import calls
from roquette.client.session import Session
from roquette.errors import BrokerError, ClientError

SOON_S: Final = 0.5
"""Between two looks for what a consumer needs to begin: a topic, a broker, a name server."""
CANCEL_S: Final = 0.15
"""Who joins a group and is cancelled ends within it; the group is left without him."""


async def members_of(session: Session, group: str, topic: str) -> list[str]:
    """Sorted client ids; empty when no broker of the topic knows a member, or answers.

    A broker that does not know us yet, as one that came after our last heartbeat, is told of us and asked again.
    """
    route = session.known_route(topic)
    found: list[str] = []
    for name in sorted(route.addresses) if route is not None else ():
        address = route.address_for_read(name) if route is not None else None
        if address is None:
            continue
        try:
            found = await _ask_broker(session, group, address) or found
            if session.client_id not in found:
                await session.beat(address)
                found = await _ask_broker(session, group, address) or found
        except ClientError:
            continue
        if session.client_id in found:
            break
    return found


async def _ask_broker(session: Session, group: str, address: str) -> list[str]:
    try:
        return await session.api.call(address, calls.members(group))
    except BrokerError:
        return []  # nobody of the group is there
