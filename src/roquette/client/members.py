"""Who belongs to a group, as its brokers say."""

from roquette.client import calls
from roquette.client.session import Session
from roquette.errors import ClientError


async def members_of(session: Session, group: str, topic: str) -> list[str]:
    """Sorted client ids; empty when no broker of the topic knows a member, or answers."""
    route = session.known_route(topic)
    for name in sorted(route.addresses) if route is not None else ():
        address = route.address_for_read(name) if route is not None else None
        if address is None:
            continue
        try:
            members = await session.api.call(address, calls.members(group))
        except ClientError:
            continue
        if members:
            return members
    return []
