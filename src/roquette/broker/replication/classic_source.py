"""Whom a replica outside of a group follows: haMasterAddress, or what the name servers say."""

import logging

from roquette.broker.cluster.outbound import Outbound
from roquette.broker.core import BrokerCore
from roquette.broker.replication.follower import Source
from roquette.broker.replication.source import MasterSource
from roquette.errors import ClientError
from roquette.remoting.client import split_address

log = logging.getLogger("roquette.broker.replication")


class ClassicSource(Source):
    """Apache's default replication (brokerRole=SLAVE): no epochs, so a log that differs is not noticed.

    A log that is empty is to get all that the master has. A replica that reports 0 gets the last file only, so the master
    is asked where its log begins; when that is 0, the log begins with its first byte, which is always zero.
    """

    def __init__(self, core: BrokerCore, outbound: Outbound, master: MasterSource) -> None:
        """`master`: what the name servers answered to our registration."""
        self._core = core
        self._outbound = outbound
        self._master = master

    @property
    def address(self) -> str:
        """The master's door for replicas."""
        return self._core.live.current.ha_master_address or self._master.ha_address

    async def prepare(self) -> bool:
        """Let an empty log begin where the master's does. False: the master does not say where."""
        store = self._core.store
        if store.max_physical_offset:
            return True
        master = self._master.master_address
        if (
            not master
        ):  # haMasterAddress without name servers: Apache's masters listen one port below
            host, port = split_address(self.address)
            master = f"{host}:{port - 1}"
        try:
            found = await self._outbound.runtime_info(master, 3_000)
            begin, end = int(found["commitLogMinOffset"]), int(found["commitLogMaxOffset"])
        except (ClientError, KeyError, ValueError) as error:
            log.warning("the master does not say where its log begins error=%r", error)
            return False
        if end and store.raw_end == 0:
            store.begin_log(begin or 1)
        return True

    def behind(self, begin: int) -> None:
        """The master has deleted what we need."""
        log.error(
            "the master has deleted what this replica lacks: stop it, empty its store, and start it again begin=%d",
            begin,
        )
