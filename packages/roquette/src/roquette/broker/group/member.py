"""A member of a group: one process that is the master's broker or a replica's, as the group decides.

A broker is born one or the other: a change of role ends one `Broker` and begins another one over the same store.
Becoming master: the replica's broker ends in order, the epoch's mark is synced, the master's broker starts and finds
what it needs in files and log, as after any start. Losing the office: the master's broker ends as if it were killed,
nothing leaves it any more, and recovery finds what it had written. docs/decisions/0029-born-master-or-replica.md.
"""

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Final

from roquette.access.model import OPEN_TO_ALL
from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.floor.config import BrokerConfig, LiveConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature
from roquette.broker.floor.outbound import advertised_host, free_port
from roquette.broker.floor.parts import Identity
from roquette.broker.group.driver import TakeOverDriver
from roquette.broker.group.member_file import MemberFile, find_id
from roquette.broker.replication.scrub import Scrub
from roquette.broker.service import Broker
from roquette.errors import RoquetteError
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import open_agreement
from roquette.remoting.settings import UNPROTECTED
from roquette.replication.effects import Follow, Role, TakeOverSettings
from roquette.replication.epochs import BeginAnew, Cut, EpochMarks, Join, load_epochs, save_epochs
from roquette.replication.record import GroupRecord, MemberPlace, OwnStore, record_key
from roquette.replication.takeover import TakeOver
from roquette.store.cut import cut_log, drop_log
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.message_store import MessageStore
from roquette.wire.signature import Prover

# Probe of a member's disk: a small write each second proves that it takes writes, also when nobody sends.


FILE: Final = "diskProbe"
PROBE_S: Final = 1.0
STOOD_STILL_MS: Final = 1_000


class DiskProbe:
    """`now_ms`: the clock of leases."""

    def __init__(self, files: Files, root: str, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._root = root
        self._path = os.path.join(root, FILE)
        self._now_ms = now_ms
        self._proven_ms = self._looked_ms = now_ms()
        self._refusal = ""

    async def run(self, health: Health, refusal: Callable[[], str | None]) -> None:
        """For ever. `refusal`: why senders are refused for want of space, if they are."""
        while True:
            try:
                await run_blocking(self._write)
                self._refusal = refusal() or ""
            except OSError as error:
                self._refusal = f"cannot be written: {error}"
            if not self._refusal:
                self._proven_ms = self._now_ms()
            health.worked()
            await asyncio.sleep(PROBE_S)

    def sick(self, now_ms: int, patience_ms: int) -> str:
        """In words: it has taken nothing for so long. Empty: it has. To be asked all the time: while nobody asks, the
        process stands still, which says nothing of its disk."""
        stood_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if stood_ms > STOOD_STILL_MS:
            self._proven_ms += stood_ms
        if now_ms - self._proven_ms <= patience_ms:
            return ""
        why = self._refusal or f"has not answered for more than {patience_ms / 1000:.0f} s"
        return f"the disk below {self._root} takes no messages: {why}"

    def _write(self) -> None:
        file = self._files.open_file(self._path, create=True)
        try:
            file.pwrite(bytes(512), 0)
            file.sync()
        finally:
            file.close()


log = logging.getLogger("roquette.broker.replication")

EPOCHS: Final = "epochFileCheckpoint"
LEAVE_S: Final = 3.0  # a planned stop waits so long for a change of role, then for the others
LEAVE_STEPS: Final = 30

MemberFeatures = Callable[["GroupMember", BrokerCore], list[Feature]]


class GroupMember:
    """Runs one broker after the other.

    Args:
        config: brokerId, if above 0, is the member's id; else it gets a free one.
        master_features, replica_features: make the list of features of a master, of a replica.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        master_features: MemberFeatures,
        replica_features: MemberFeatures,
        files: Files,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.config = config
        self._store_config = store_config
        self._master_features, self._replica_features = master_features, replica_features
        self._files, self._clock, self._entropy = files, clock, entropy
        self._root = store_config.root_dir
        self._settings = TakeOverSettings(
            total=config.total_replicas,
            min_in_sync=config.min_in_sync_replicas,
            in_sync=config.in_sync_replicas,
            lag_ms=config.ha_max_time_slave_not_catchup,
        )
        self._key = record_key(config.broker_cluster_name, config.broker_name)
        self._sync_flush = store_config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.tasks = Tasks()
        self.failure: str | None = None
        self._failed = asyncio.Event()
        self.broker: Broker | None = None  # None between two
        self.protection = UNPROTECTED  # may be set before the start, as those of a broker
        self.access = OPEN_TO_ALL
        self._watching: asyncio.Task[None]
        self.is_master = False
        self.marks = EpochMarks()
        self.followed: Follow | None = None
        self.id = 0
        self._won: int | None = None  # an order that waits: the epoch of an office
        self._join: Join | None = None  # an order that waits: what to do with the log
        self._deposed = False  # an order that waits
        self._ordered = asyncio.Event()
        self._end = 0
        self._store: MessageStore | None = None  # of the broker that runs
        self._held = ExitStack()  # our ports, until the first broker opens them
        self.leaving = self._takes_part = False
        # Set by the features of a master while there is one.
        self.on_confirmed: Callable[[int], None] | None = None
        self.on_drop: Callable[[int], None] | None = None

    # What a caller sees of a broker.

    @property
    def name(self) -> str:
        """The group's name."""
        return self.config.broker_name

    @property
    def address(self) -> str:
        """The address for clients and name servers, whatever the role."""
        return self.place.address

    async def start(self) -> None:
        """Recover, accept as a replica, and take part in who is master.

        Raises:
            StoreError, ConfigError, OSError: it cannot start; what was opened is closed again.
        """
        prover = Prover(self._clock.now_ms, self._entropy.secret(16))
        calls = self.access.sign(self.protection.calls, prover)
        self._client = RemotingClient(self._clock, security=calls)
        async with AsyncExitStack() as failed:
            failed.push_async_callback(self._client.close)
            self._agreement = await open_agreement(
                self.config.controller_addr, self._client, self._files
            )
            failed.push_async_callback(self._agreement.close)
            failed.push_async_callback(self._abandon)
            await self._begin()
            failed.pop_all()

    async def _begin(self) -> None:
        await self._choose_ports()
        self.marks = await run_blocking(load_epochs, self._files, self._epochs_path)
        self._file = MemberFile(self._files, self._root, self._key)
        identity = await run_blocking(self._file.load, self.config.broker_id, not self.marks.marks)
        if not (identity.id and (self.config.broker_id or self.marks.marks)):
            identity.id = await find_id(identity, self._agreement, self._key, self.place)
        self.id = identity.id
        self._identity = identity
        broker = await self._open_replica(0, None)
        own = self._begin_life(broker)
        await run_blocking(self._file.save, identity)
        self.table = TakeOver(self.id, self.place, self.marks, self._settings, own)
        self.driver = TakeOverDriver(self.table, self._agreement, self._key, self._clock, self)
        self._takes_part = True
        self._settle_replica(broker, 0)
        self._changes = self.tasks.keep("role", self._change_roles)
        self._disk = DiskProbe(self._files, self._root, lambda: self.driver.now_ms)
        self.tasks.keep("disk-probe", self._prove_disk)
        self.scrub = Scrub(lambda: self._store, self.table, self._client, self._clock)
        self.tasks.keep("scrub", self.scrub.run)
        self.driver.start(self._settings.look_ms)
        log.info("member of a group key=%s id=%d address=%s", self._key, self.id, self.address)
        if self.config.broker_role != "SYNC_MASTER":
            log.warning(
                "brokerRole=%s: answers do not wait for replicas, a take-over may lose what was acknowledged last; "
                "set SYNC_MASTER",
                self.config.broker_role,
            )

    async def wait_failed(self) -> str:
        """Wait until the broker cannot go on; returns the reason."""
        await self._failed.wait()
        return self.failure or ""

    async def stop(self) -> None:
        """Give the office back when the others have all, then stop in order."""
        self.leaving = True
        self._ordered.set()
        # One that is under way has a broker in its hands, which nobody else would stop.
        await asyncio.wait([self._changes], timeout=LEAVE_S)
        await self.tasks.stop()
        if self.is_master and self.failure is None:
            self.driver.act(self.table.released(self.driver.now_ms))
            for _ in range(LEAVE_STEPS):
                if self.table.role is not Role.MASTER:
                    break
                await asyncio.sleep(LEAVE_S / LEAVE_STEPS)
        await self.driver.stop()
        if ended := self.broker is not None:
            broker = self._take_broker()
            await (broker.stop() if self.failure is None else broker.abandon())
        if ended and self.failure is None and self.table.settled:
            self._identity.clean = True
            self._note_record()
            await run_blocking(self._file.save, self._identity)
        await self._agreement.close()
        await self._client.close()

    async def _abandon(self) -> None:
        """As a kill."""
        self._held.close()
        await self.tasks.stop()
        if self.broker is not None:
            await self._take_broker().abandon()

    @property
    def _epochs_path(self) -> str:
        return os.path.join(self._root, EPOCHS)

    async def _choose_ports(self) -> None:
        config = self.config
        port = config.listen_port or await free_port(config.bind_address, self._held)
        ha_port = config.ha_listen_port or port + 1
        self.config = dataclasses.replace(
            config,
            listen_port=port,
            ha_listen_port=ha_port,
            ha_send_heartbeat_interval=self._settings.silent_ms // 3,
        )
        host = advertised_host(self.config)
        self.place = MemberPlace(address=f"{host}:{port}", ha_address=f"{host}:{ha_port}")

    def _begin_life(self, broker: Broker) -> OwnStore:
        store = broker.store
        empty = store.wrote == store.min_physical_offset and not self.marks.marks
        fault = "damage has cut the log" if broker.opened.damaged else ""
        return self._file.begin_life(self._identity, self._entropy, self._sync_flush, fault, empty)

    async def _prove_disk(self, health: Health) -> None:
        await self._disk.run(health, lambda: self._store.send_refusal if self._store else None)

    def _note_running(self) -> None:
        """From now on the log may get what a power cut takes back: the next start must know. Not before the record
        says what the last one took: a crash in between would hide it. Blocks, once for each master."""
        identity = self._identity
        self._note_record()
        if self.table.settled:
            self._file.runs(identity, self._sync_flush)
        self._file.save(identity)

    def _note_record(self) -> None:
        if self.table.record is not None:
            self._identity.note(self.table.record)

    def entered(self, record: GroupRecord) -> None:
        """The record knows this opening. Blocks, once in a life."""
        identity = self._identity
        identity.openings = identity.openings[-1:]
        identity.note(record)
        self._file.save(identity)

    # Orders of the table: kept, and carried out one after the other. What stops acknowledgements is done at once.

    def own_end(self) -> int:
        """Return where our log ends; while no broker runs, where it ended last."""
        if self._store is not None:
            self._end = self._store.wrote
        return self._end

    def sick(self) -> str:
        """A disk that has taken nothing for as long as a lease lasts, in words."""
        return self._disk.sick(self.driver.now_ms, self._settings.ttl_ms)

    def won(self, epoch: int) -> None:
        """Become master."""
        self._note_running()
        self._won, self._deposed = epoch, False
        self._ordered.set()

    def deposed(self, why: str) -> None:
        """Nothing leaves the master any more."""
        log.warning("not master any more key=%s id=%d: %s", self._key, self.id, why)
        self._won = None
        if self.is_master:
            self._deposed = True
            if self.broker is not None:
                self.broker.fall_silent()
            self._ordered.set()

    def follow(self, order: Follow) -> None:
        """Connect to that master."""
        self._note_running()
        log.info("following broker %d of epoch %d at %s", order.master, order.epoch, order.place)
        self.followed = order

    def leave(self) -> None:
        """Take nothing from a master any more."""
        self.followed = None

    def drop(self, who: int) -> None:
        """Close the connection of a replica of ours."""
        if self.on_drop is not None:
            self.on_drop(who)

    def confirmed(self, offset: int) -> None:
        """All of the set has the log up to here."""
        if self.on_confirmed is not None:
            self.on_confirmed(offset)

    def health(self, users: int) -> dict[str, str]:
        """Return what every member says of its group, whatever its role; nothing before it takes part. `users`: how many
        it knows; who says so takes them sealed (decision 38)."""
        if not self._takes_part:
            return {}
        return {
            "groupId": self._identity.record_group,
            "groupLastEpoch": str(self.marks.last_epoch),
            "groupWrittenEpoch": str(self.marks.written(self.own_end())),
            "groupRecordNumber": str(self.table.known_number),
            "groupTrouble": self.table.trouble,
            "groupTroubleKinds": ",".join(self.table.troubles),
            "groupUsers": str(users),
            **self.scrub.health(),
        }

    @property
    def steady(self) -> bool:
        """A replica runs, and no change of its log is ordered: it may take bytes. Not with a disk that takes none: its
        signs of life would hold acknowledgements up."""
        waits = self._join is not None or self._won is not None
        return self._store is not None and not waits and not self.sick()

    def rejoin(self, join: Join) -> None:
        """A replica must cut or drop its log before it can follow."""
        self._join = join
        self._ordered.set()

    async def _change_roles(self, health: Health) -> None:
        while True:
            await self._ordered.wait()
            if self.leaving:
                return
            # Before they are carried out: an order that comes meanwhile sets it again.
            self._ordered.clear()
            done = False
            try:
                await self._obey()
                done = True
            except (RoquetteError, OSError) as error:
                self.fail(f"a change of role failed: {error}")
                return
            finally:
                if not done and not self.leaving:  # a defect of ours: no office without a broker
                    self.fail("a change of role failed")
            health.worked()

    async def _obey(self) -> None:
        if self._deposed:
            await self._lose_office()
        if self._join is not None:
            join, self._join = self._join, None
            # A master, or who becomes one, keeps its log: the others make theirs a beginning of it.
            if not self.is_master and self._won is None:
                await self._fit_log(join)
        if self._won is not None:
            epoch, self._won = self._won, None
            await self._become_master(epoch)

    async def _become_master(self, epoch: int) -> None:
        if self.is_master:  # the office came back before its loss was carried out
            await self._lose_office()
        began_ms = self.driver.now_ms
        store = await self._take_broker().hand_over()
        begin, end = store.min_physical_offset, store.max_physical_offset
        # The replica took its time to end: the office can be lost by now, or be that of another epoch.
        if self.table.role is Role.MASTER and self.table.epoch == epoch:
            marks = self.marks.won(epoch, begin, end)
            # On the disk before a message of the epoch can be in the log.
            await run_blocking(save_epochs, self._files, self._epochs_path, marks)
            self.marks = marks
            await self._start_master(epoch, store)
            took_ms = self.driver.now_ms - began_ms
            log.info("master of epoch %d key=%s end=%d took_ms=%d", epoch, self._key, end, took_ms)
        else:
            await self._start_replica(store)

    async def _lose_office(self) -> None:
        self._deposed = False
        await self._take_broker().abandon()
        await self._start_replica()
        if self.broker is not None and self.broker.opened.damaged:
            self.fail("the log is damaged: the next start says so to the group")

    def master_runs(self, store: MessageStore) -> None:
        """The master's broker has loaded all it needs, and accepts."""
        self._store = store
        self.driver.act(self.table.began(self.driver.now_ms, self.marks, store.wrote))

    async def _fit_log(self, join: Join) -> None:
        """Make our log a beginning of the master's."""
        assert isinstance(join, Cut | BeginAnew)
        await self._take_broker().stop()
        config = self._store_config
        if isinstance(join, Cut):
            report = await run_blocking(cut_log, self._files, config, join.at)
            log.warning("the log was another one than the master's: %s", report)
        else:
            log.warning("the log begins anew, the master's begins at %d", join.at)
            await run_blocking(drop_log, self._files, config)
        # After the log: when a crash comes between, `_settle_replica` drops the marks beyond its end.
        self.save_marks(join.kept)
        await self._start_replica(begin=join.at if isinstance(join, BeginAnew) else 0)

    def save_marks(self, marks: EpochMarks) -> None:
        """The log's history is this from now on: on the disk when it returns. Blocks, and is rare. Raises OSError."""
        if marks != self.marks:
            save_epochs(self._files, self._epochs_path, marks)
            self.marks = self.table.marks = marks

    # Brokers.

    async def _start_master(self, epoch: int, store: MessageStore) -> None:
        config = dataclasses.replace(self.config, broker_id=0)
        self.is_master = True
        await self._run(config, self._master_features, epoch, store)

    async def _start_replica(self, store: MessageStore | None = None, begin: int = 0) -> None:
        """`store`: is open. `begin`: where an empty log begins."""
        self._settle_replica(await self._open_replica(self.table.epoch, store), begin)

    async def _open_replica(self, epoch: int, store: MessageStore | None) -> Broker:
        config = dataclasses.replace(self.config, broker_id=self.id, broker_role="SLAVE")
        self.is_master, self.followed, self._join = False, None, None
        return await self._run(config, self._replica_features, epoch, store)

    def _settle_replica(self, broker: Broker, begin: int) -> None:
        """It may follow a master."""
        store = self._store = broker.store
        if begin:
            store.begin_log(begin)
        self.save_marks(self.marks.without_beyond(store.max_physical_offset))
        self.driver.act(self.table.refollow())

    async def _run(
        self, config: BrokerConfig, features: MemberFeatures, epoch: int, store: MessageStore | None
    ) -> Broker:
        broker = Broker(
            config,
            self._store_config,
            lambda core: features(self, core),
            files=self._files,
            clock=self._clock,
            entropy=self._entropy,
        )
        broker.identity = Identity(config.broker_id, epoch, config.ha_listen_port)
        broker.handed, broker.held = store, self._held
        broker.protection, broker.access = self.protection, self.access
        await broker.start()
        self.broker = broker
        live = broker.core.live
        live.changed.append(lambda names: self._follow_settings(live))
        self._watching = self.tasks.start("broker-failure", self._watch(broker))
        return broker

    def _follow_settings(self, live: LiveConfig) -> None:
        """Take in what an operator changes: it counts at once, and for the broker after a change of role."""
        mine, config = self.config, live.current
        self.config = dataclasses.replace(
            config, broker_id=mine.broker_id, broker_role=mine.broker_role
        )
        self._store_config = live.store
        self._settings = dataclasses.replace(
            self._settings,
            min_in_sync=config.min_in_sync_replicas,
            in_sync=config.in_sync_replicas,
        )
        self.table.settings = self._settings

    async def _watch(self, broker: Broker) -> None:
        why = await broker.wait_failed()
        if broker is self.broker:
            self.fail(why)

    def fail(self, why: str) -> None:
        """This process cannot go on: the others will."""
        if self.failure is None:
            log.error("this member cannot go on key=%s id=%d: %s", self._key, self.id, why)
            self.failure = why
            self._failed.set()

    def _take_broker(self) -> Broker:
        """The broker that runs, to be ended."""
        broker = self.broker
        assert broker is not None
        self._watching.cancel()
        self._end = broker.store.wrote
        self.broker = self._store = self.on_confirmed = self.on_drop = None
        self.is_master = False
        broker.core.identity.stays = not self.leaving
        return broker
