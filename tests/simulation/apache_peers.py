"""Brokers of Apache's in the simulation: models of the classic replication of 5.x, slave and master, in our broker's body.

They do what DefaultHAClient, DefaultHAConnection and GroupTransferService do, and what those do not. The slave says first
what it has when it was silent for 5 s; it takes whole units only, compares the offset in front of each with its own end
and nothing else, drops one that crosses a file, and comes back after 5 s. The master begins where the first report says
(0: with its last file), checks no report against its end, sends what it gets later to one that is ahead, and shows neither
`roquetteForm` nor what is confirmed.
"""

import asyncio
import contextlib
import json
import logging
import struct
from collections.abc import Iterable
from typing import Any

from roquette.apps.features import broker_features, replica_features
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.cluster.feature import ClusterFeature
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature
from roquette.broker.replication.follower import SlaveReplication
from roquette.broker.replication.master import MasterReplication
from roquette.errors import StoreError
from roquette.remoting.request import Reply, Row
from roquette.wire.codes import RequestCode

log = logging.getLogger("tests.apache")

HEAD = struct.Struct(">qi")
SIGN_S, SILENT_S, RETRY_S = 5, 20, 5
UNIT = 32 << 10
OURS_ONLY = ("roquetteForm", "commitLogConfirmOffset")


def apache_slave(core: BrokerCore) -> list[Feature]:
    """What a slave of Apache's does."""
    made = replica_features(core)
    (cluster,) = (one for one in made if isinstance(one, ClusterFeature))
    return [
        ApacheSlave(core, cluster.registration) if isinstance(one, SlaveReplication) else one
        for one in made
    ]


def apache_master(core: BrokerCore) -> list[Feature]:
    """What a master of Apache's does."""
    return [
        ApacheMaster(core) if isinstance(one, MasterReplication) else one
        for one in broker_features(core)
    ]


class ApacheBody(Feature):
    """What is common: its run-time table has no lines of ours."""

    def admit(self, row: Row) -> Row:
        if row.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            ours = row.process

            def process(*asked: Any) -> Reply:
                reply = ours(*asked)
                table = json.loads(reply.body)
                for name in OURS_ONLY:
                    del table["table"][name]
                return Reply(reply.ext, json.dumps(table).encode())

            row.process = process
        return row


class ApacheSlave(ApacheBody):
    """Attributes: garbled: a unit, taken by its offset alone, was no continuation of the log."""

    def __init__(self, core: BrokerCore, master: Any) -> None:
        self.core, self.master = core, master
        self.garbled = False
        self.reported = 0
        self._tasks = Tasks()

    def rows(self) -> Iterable[Row]:
        return ()

    async def start(self, tasks: Tasks) -> None:
        self.loop = asyncio.get_running_loop()
        self.wrote_s = self.loop.time()
        self._tasks.keep("apache-slave", self._run)

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _run(self, health: Health) -> None:
        while True:
            host, _, port = self.master.ha_address.rpartition(":")
            if host:
                try:
                    reader, writer = await asyncio.open_connection(host, int(port))
                except OSError:
                    pass
                else:
                    try:
                        await self._transfer(reader, writer)
                    except OSError as error:
                        log.info("the master is gone: %r", error)
                    finally:
                        writer.transport.abort()
            await asyncio.sleep(RETRY_S)

    def _report(self, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">q", self.reported))
        self.wrote_s = self.loop.time()

    async def _transfer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store, held = self.core.store, b""
        self.reported, read_s = store.raw_end, self.loop.time()
        while self.loop.time() - read_s <= SILENT_S:
            if self.loop.time() - self.wrote_s > SIGN_S:
                self._report(writer)
            try:
                data = await asyncio.wait_for(reader.read(1 << 20), 1)
            except TimeoutError:
                continue
            if not data:
                return
            read_s, held = self.loop.time(), held + data
            while len(held) >= HEAD.size:
                offset, size = HEAD.unpack_from(held)
                if store.raw_end not in (0, offset):
                    log.error("the master sent %d, this log ends at %d", offset, store.raw_end)
                    return
                if len(held) < HEAD.size + size:
                    break
                body, held = held[HEAD.size : HEAD.size + size], held[HEAD.size + size :]
                if not self._append(offset, body):
                    return
                if store.raw_end > self.reported:
                    self.reported = store.raw_end
                    self._report(writer)

    def _append(self, offset: int, body: bytes) -> bool:
        store = self.core.store
        segment = store.config.segment_size
        if not body:
            return True
        if len(body) > segment - offset % segment:
            log.error("a unit crosses the end of a file, it is dropped")
            return True
        try:
            if store.raw_end == 0 and offset:
                store.begin_log(offset)
            store.append_raw(offset, body)
        except StoreError as error:  # Apache's would append it, and its dispatcher stop there
            log.error("these bytes do not continue this log: %s", error)
            self.garbled = True
            return False
        self.core.shell.end_turn()
        return True


class ApacheMaster(ApacheBody):
    """Attributes: acks: the last report of each connection."""

    def __init__(self, core: BrokerCore) -> None:
        self.core = core
        self.acks: dict[object, int] = {}
        self._news = asyncio.Event()
        self._tasks = Tasks()

    async def start(self, tasks: Tasks) -> None:
        self.loop = asyncio.get_running_loop()
        self.core.replicas.refusal = None
        address = self.core.live.current.bind_address
        self._server = await asyncio.start_server(self._come, address, self.core.identity.ha_port)

    async def stop(self) -> None:
        self._server.close()
        await self._tasks.stop()

    def turn_written(self, log_end: int) -> bool:
        self._wake()
        return True

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(f"apache-{id(writer)}", self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.acks[writer] = -1
        feed = self.loop.create_task(self._feed(writer))
        held = b""
        try:
            while data := await asyncio.wait_for(reader.read(1 << 20), SILENT_S):
                held += data
                whole = len(held) & ~7
                if whole:
                    (self.acks[writer],) = struct.unpack_from(">q", held, whole - 8)
                    held = held[whole:]
                    self.core.log_sync.replicated(max(self.acks.values()))
                    self._wake()
        except (OSError, TimeoutError) as error:
            log.info("the slave is gone: %r", error)
        finally:
            del self.acks[writer]
            feed.cancel()
            writer.transport.abort()

    async def _feed(self, writer: asyncio.StreamWriter) -> None:
        store, wrote_s, place = self.core.store, self.loop.time(), -1
        while writer in self.acks:  # `wait_for` may lose a cancellation
            if place < 0 <= self.acks[writer]:
                end = store.wrote
                place = self.acks[writer] or end - end % store.config.segment_size
            data = b""
            if place >= 0:
                if self.loop.time() - wrote_s > SIGN_S:
                    writer.write(HEAD.pack(place, 0))
                    wrote_s = self.loop.time()
                if store.min_physical_offset <= place < store.wrote:
                    data = store.read_raw(place, min(UNIT, store.wrote - place))
            if data:
                writer.write(HEAD.pack(place, len(data)) + data)
                await writer.drain()
                place, wrote_s = place + len(data), self.loop.time()
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 1)
