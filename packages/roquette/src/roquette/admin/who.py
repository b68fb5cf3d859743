"""Whether somebody is a user of a cluster, told by one signed request."""

from collections.abc import Callable
from typing import Final

from roquette.base.entropy import secret_text
from roquette.client import calls
from roquette.client.client import Client
from roquette.errors import BrokerError, RouteNotFound
from roquette.message.names import TBW102
from roquette.wire.signature import Credentials

_UNPROVEN: Final = ("is not found", "is disabled", "check signature failed", "cannot be null")
_PROVEN: Final = "no permission"


async def prove(client: Client) -> bool:
    """Return True when a name server takes the client's name and secret: it answers, or refuses for want of a right.

    An open cluster takes anybody's (`is_open`).

    Raises:
        ClientError: no name server answers, or one refuses for another reason.
    """
    try:
        await client.session.ask_name_servers(calls.route(TBW102))
    except RouteNotFound:
        return True
    except BrokerError as error:
        words = (error.remark or "").lower()
        if any(each in words for each in _UNPROVEN):
            return False
        if _PROVEN not in words:
            raise
    return True


async def is_open(connect: Callable[[Credentials], Client]) -> bool:
    """Return True when a wrong name and secret are taken, as where nothing asks for them. Raises as `prove` does.

    Args:
        connect: makes a client, which is started and closed here.
    """
    async with connect(Credentials("roquette-nobody", secret_text())) as client:
        return await prove(client)
