"""The requests about users and their rules, served by a broker."""

from roquette.access.processor import AccessProcessor
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.remoting.request import Row

# Users and rules of a broker: read before anybody is let in, changed by requests at the master.


class AccessFeature(Feature):
    """Serves 3001 to 3010. A replica refuses those that change something: it has what its master has."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._access = core.access

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return AccessProcessor(self._access.settings, self._access.users).rows(Lane.ADMIN)

    async def prepare(self) -> None:
        """Read the files, and make the first users."""
        await self._access.start(self._core.live.current.bind_address)

    async def stop(self) -> None:
        """Let a change that is under way end."""
        await self._access.users.finish()
