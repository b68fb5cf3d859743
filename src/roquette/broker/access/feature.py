"""Users and rules of a broker: read before anybody is let in, changed by requests at the master.

The accounts of ACL 1.0 are each broker's own: in files, which are read again when they change.
"""

from roquette.access.plain.access import LOOK_S
from roquette.access.plain.processor import PlainProcessor
from roquette.access.processor import AccessProcessor
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Beat, Feature, Lane
from roquette.remoting.request import Row


class AccessFeature(Feature):
    """Serves 3001 to 3010, and 50 to 54. A replica refuses those that change something: it has what its master has."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._access = core.access

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            *AccessProcessor(self._access.settings, self._access.users).rows(Lane.ADMIN),
            *PlainProcessor(self._access.plain, self._whose).rows(Lane.ADMIN),
        ]

    def _whose(self) -> tuple[str, str, str]:
        core = self._core
        return core.live.current.broker_cluster_name, core.name, str(core.address)

    def beats(self) -> list[Beat]:
        """Look at the files of ACL 1.0."""
        plain = self._access.plain
        return [] if plain is None else [Beat("acl-files", LOOK_S, plain.look)]

    async def prepare(self) -> None:
        """Read the files, and make the first users."""
        await self._access.start(self._core.live.current.bind_address)

    async def stop(self) -> None:
        """Let a change that is under way end."""
        await self._access.users.finish()
