"""Whom a replica outside of a group follows: haMasterAddress, or what the name servers say."""

import logging

from roquette.base.logs import RateLimited
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.master_source import Copied, MasterSource
from roquette.broker.replication.follower import Source
from roquette.errors import BrokerError, ClientError
from roquette.remoting.client import split_address
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader

log = logging.getLogger("roquette.broker.replication")


class ClassicSource(Source):
    """Apache's default replication (brokerRole=SLAVE): no epochs, so the master is asked for our log's last record.

    A master that has lost it, or has another one there, sends nothing that fits: our log stays as it is, and says so.

    A log that is empty is to get all that the master has. A replica that reports 0 gets the last file only, so the master
    is asked where its log begins; when that is 0, the log begins with its first byte, which is always zero.
    """

    def __init__(self, core: BrokerCore, master: MasterSource) -> None:
        """`master`: what the name servers answered to our registration."""
        self._core = core
        self._outbound = core.outbound
        self._master = master
        self._noise = RateLimited(log, core.clock)

    @property
    def address(self) -> str:
        """The master's door for replicas."""
        return self._core.live.current.ha_master_address or self._master.ha_address

    @property
    def copied(self) -> Copied:
        """The master: the protocol compares no logs."""
        return Copied(self._master.master_address)

    async def prepare(self) -> bool:
        """Let an empty log begin where the master's does. False: it does not say where, or its log is not ours."""
        store = self._core.store
        own, last = store.max_physical_offset, store.last_record_offset
        master = self._master.master_address
        if (
            not master
        ):  # haMasterAddress without name servers: Apache's masters listen one port below
            host, port = split_address(self.address)
            master = f"{host}:{port - 1}"
        try:
            found = await self._outbound.runtime_info(master, 3_000)
            begin, end = int(found["commitLogMinOffset"]), int(found["commitLogMaxOffset"])
            shown = min(end, int(found.get("commitLogConfirmOffset", end)))
            same = not begin <= last < shown or await self._has_ours(master, last)
        except (ClientError, KeyError, ValueError) as error:
            self._noise.warning("silent", "the master does not say what it has error=%r", error)
            return bool(own)
        if end and store.raw_end == 0:
            store.begin_log(begin or 1)
        self.trouble = "no"
        if end < own:
            self.trouble = f"its log has {own - end} bytes from {end} on that its master lacks"
        elif not same:
            self.trouble = f"its log ends at {own} in another record than its master's has there"
        if self.trouble != "no":
            words = "this replica keeps its log and does not follow %s: %s"
            self._noise.line(logging.ERROR, "ahead", words, master, self.trouble)
        # A master of ours sends nothing while we have more, and tells it; Apache's would send what it gets later.
        return same and (end >= own or "roquetteForm" in found)

    async def _has_ours(self, master: str, last: int) -> bool:
        """Whether the master has our last record at its place. Raises ClientError."""
        ext = encode_ext(ViewMessageRequestHeader(offset=last))
        code = RequestCode.VIEW_MESSAGE_BY_ID
        try:
            reply = await self._outbound.ask(master, code, ext, timeout_ms=3_000)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return False
        return reply.body == self._core.store.record_at(last)

    def behind(self, begin: int) -> None:
        """The master has deleted what we need."""
        log.error(
            "the master has deleted what this replica lacks: stop it, empty its store, and start it again begin=%d",
            begin,
        )
