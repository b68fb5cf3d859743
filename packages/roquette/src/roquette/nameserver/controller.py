"""Records of broker groups at a name server that is a controller: Apache's requests, our own, and the file that keeps them."""

import asyncio
import base64
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from roquette.base import generations
from roquette.base.checksum import crc32
from roquette.base.executor import run_blocking
from roquette.base.files import FileLock, Files, make_durable_dir
from roquette.base.lifecycle import Tasks
from roquette.errors import AgreementError, ConfigError, Refused, StoreError
from roquette.nameserver.floor.core import NameServerCore, NameServerLane, decode_or_refuse
from roquette.nameserver.processors.operators import SettingsProcessor
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import Reply, RequestContext, Row, Task, row
from roquette.replication.record import (
    Agreement,
    GroupRecord,
    Stored,
    is_record_key,
    ordered_master,
    read_group,
    record_key,
)
from roquette.wire import bodies as b
from roquette.wire import headers as h
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode as C
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.json_body import encode_body

# Records of groups in one file of one name server: linearizable, because one process writes and answers alone.
# The file (docs/formats/registers.md) is replaced as a whole and synced before anything in it is shown or answered. Its own CRC tells whether it is what was written last: nothing but the newest content is ever taken, because an older one would let a broker win a second time.


log = logging.getLogger("roquette.nameserver")

NAME: Final = "registers.json"
MOST_KEYS: Final = 1_000
MOST_VALUE: Final = 64 << 10  # bytes of one value
MOST_KEY: Final = 1_024  # characters of a key
MOST_BYTES: Final = 4 << 20  # of all values
MOST_WAITING: Final = 10_000  # conditional writes that wait for the disk
TOO_LARGE: Final = f"a record has at most {MOST_VALUE} bytes, its key {MOST_KEY} characters"

_NONE: Final = Stored(0, b"")


class _Wish(NamedTuple):
    """A conditional write that waits."""

    key: str
    revision: int
    value: bytes
    outcome: "asyncio.Future[int | None]"


class RegisterFile:
    """An `Agreement` in the file `registers.json` of a directory, which no other process may use.

    Revisions are a counter of all writes to the file. What waits while a write is under way goes with the next one.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{NAME}"
        self._table: dict[str, Stored] = {}  # as it is on the disk
        self._counter = 0
        self._waiting: list[_Wish] = []
        self._tasks = Tasks()
        self._writer: asyncio.Task[None] | None = None
        self._lock: FileLock | None = None

    async def load(self) -> None:
        """Take the file; raises ConfigError when another process has it, or its newest content is not there."""
        try:
            await run_blocking(self._load)
        except (StoreError, OSError) as error:
            await self.close()
            raise ConfigError(f"the controller's records cannot be used: {error}") from None
        log.warning(
            "controller=embedded: records of groups stand in %s: safe, but not replicated. While this name "
            "server is down no broker can become master; etcd has no such gap groups=%d",
            self._path,
            len(self._table),
        )

    def _load(self) -> None:
        make_durable_dir(self._files, self._path)
        try:
            self._lock = self._files.lock_file(self._path + ".lock")
        except StoreError:
            raise StoreError(
                f"another name server uses {self._path}: give this one another controllerStorePath"
            ) from None
        beside = (*generations.BACKUPS, generations.SUMS)
        if self._files.exists(self._path):
            found, self._counter = decode_registers(self._path, self._files.read_bytes(self._path))
            self._files.sync_dir(os.path.dirname(self._path))  # its name may not be on the disk yet
            self._table.update(found)
        elif any(self._files.exists(self._path + suffix) for suffix in beside):
            raise StoreError(f"{self._path} is missing. {_REMEDY}")

    async def get(self, key: str) -> Stored:
        """See `Agreement`: what is synced, and nothing that might still be lost."""
        return self._table.get(key, _NONE)

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        if len(self._waiting) >= MOST_WAITING:
            raise AgreementError(f"{MOST_WAITING} writes of records wait for the disk already")
        outcome: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wish(key, revision, value, outcome))
        if self._writer is None:  # a task of its own: a caller that goes away ends no write
            self._writer = self._tasks.start("write-registers", self._write_all())
        return await outcome

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write()
        finally:
            self._writer = None

    async def _write(self) -> None:
        """Decide all that waits, in order, and answer when the result is on the disk: what loses, too, because it may
        lose to what is written now."""
        wishes, self._waiting = self._waiting, []
        table = dict(self._table)
        decided: list[tuple[_Wish, int | None]] = []
        for wish in wishes:
            words = _refusal(table, wish)
            if words:
                _answer(wish, AgreementError(words))
            elif wish.revision == table.get(wish.key, _NONE).revision:
                self._counter += 1
                table[wish.key] = Stored(self._counter, wish.value)
                decided.append((wish, self._counter))
            else:
                decided.append((wish, None))
        try:
            if any(number is not None for _, number in decided):
                await run_blocking(self._save, table, self._counter)
            self._table = table
            for wish, number in decided:
                _answer(wish, number)
        except (OSError, MemoryError) as error:  # the old or the new content is there, whole
            log.error("records of groups are not written path=%s error=%s", self._path, error)
            for wish, _ in decided:
                _answer(wish, AgreementError(f"the record could not be written: {error}"))

    def _save(self, table: dict[str, Stored], counter: int) -> None:
        generations.save(self._files, self._path, encode_registers(table, counter))

    async def close(self) -> None:
        """Let what was begun end; give the file free."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                lock.release()


def _answer(wish: _Wish, outcome: int | AgreementError | None) -> None:
    if wish.outcome.done():
        return  # its caller has gone
    if isinstance(outcome, AgreementError):
        wish.outcome.set_exception(outcome)
    else:
        wish.outcome.set_result(outcome)


def _refusal(table: dict[str, Stored], wish: _Wish) -> str:
    """Return why a write cannot be taken at all; empty when it can."""
    if len(wish.value) > MOST_VALUE or len(wish.key) > MOST_KEY:
        return TOO_LARGE
    if wish.key not in table and len(table) >= MOST_KEYS:
        return f"this controller keeps at most {MOST_KEYS} records: use etcd for more"
    if sum(len(stored.value) for stored in table.values()) + len(wish.value) > MOST_BYTES:
        return f"the records of this controller have at most {MOST_BYTES} bytes: use etcd for more"
    return ""


_REMEDY: Final = (
    "Only the content that was written last may be used: with an older one two brokers could be masters. Put the "
    "file back; or stop all brokers of all groups, remove every file whose name begins with it, and start again"
)


def encode_registers(table: dict[str, Stored], counter: int) -> bytes:
    """The file's content: a line of JSON, and a line with its CRC-32."""
    registers = {
        key: {"revision": stored.revision, "value": base64.b64encode(stored.value).decode()}
        for key, stored in table.items()
    }
    body = json.dumps({"counter": counter, "registers": registers}).encode()
    return b"%s\n%08x\n" % (body, crc32(body))


def decode_registers(path: str, data: bytes) -> tuple[dict[str, Stored], int]:
    """Registers and counter; raises StoreError when this is not what was written."""
    body, _, check = data.partition(b"\n")
    try:
        if check != b"%08x\n" % crc32(body):
            raise ValueError("its checksum is wrong")
        content = json.loads(body)
        registers = {
            key: Stored(stored["revision"], base64.b64decode(stored["value"]))
            for key, stored in content["registers"].items()
        }
        return registers, content["counter"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}. {_REMEDY}") from None


# Apache's requests to a controller, as far as its mqadmin makes them: they read and write the records of groups.
# Apache's brokers cannot use this controller: their registration with one (1001, 1003, 1012, 1013) is not served.


# The two requests by which brokers reach the records of their groups (remoting/etcd.py asks them).


NO_CONTROLLER = "this name server keeps no records of groups: start it with --controller embedded, managed or etcd://..."

ALONE = (
    "this name server keeps the records of groups in a file of its own (controller=embedded): "
    "controllerAddr must name it alone"
)


def need(agreement: Agreement | None) -> Agreement:
    """The controller's; raises Refused when this name server is none."""
    if agreement is None:
        raise Refused(C.REQUEST_CODE_NOT_SUPPORTED, NO_CONTROLLER)
    return agreement


class RegisterProcessor:
    """Serves `Agreement.get` and `Agreement.put_if`."""

    def __init__(self, agreement: Agreement | None) -> None:
        self._agreement = agreement

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        lane = NameServerLane.BROKERS
        return [
            row(R.GET_REGISTER, self.get, h.GetRegisterRequestHeader, lane, P.NOTHING),
            row(R.PUT_REGISTER_IF, self.put_if, h.PutRegisterIfRequestHeader, lane, P.FILE),
        ]

    def _asked(self, several: bool, key: str) -> Agreement:
        agreement = need(self._agreement)
        if not is_record_key(key):  # an etcd has more than ours, and this server's rights
            raise Refused(C.INVALID_PARAMETER, f"key[{key[:80]}] is of no broker group")
        if several and isinstance(agreement, RegisterFile):  # each would elect a master of its own
            raise Refused(C.SYSTEM_ERROR, ALONE)
        return agreement

    def get(self, ctx: RequestContext, header: h.GetRegisterRequestHeader, body: bytes) -> Task:
        """GET_REGISTER."""
        return Task(self._get(self._asked(header.several, header.key), header.key))

    async def _get(self, agreement: Agreement, key: str) -> Reply:
        try:
            stored = await agreement.get(key)
        except AgreementError as error:
            raise Refused(C.SYSTEM_ERROR, str(error)) from None
        return _reply(stored.revision, stored.value)

    def put_if(
        self, ctx: RequestContext, header: h.PutRegisterIfRequestHeader, body: bytes
    ) -> Task:
        """PUT_REGISTER_IF."""
        agreement = self._asked(header.several, header.key)
        if len(body) > MOST_VALUE or len(header.key) > MOST_KEY:
            raise Refused(C.SYSTEM_ERROR, TOO_LARGE)
        return Task(self._put_if(agreement, header.key, header.revision, bytes(body)))

    async def _put_if(self, agreement: Agreement, key: str, revision: int, value: bytes) -> Reply:
        try:
            new = await agreement.put_if(key, revision, value)
        except (
            AgreementError
        ) as error:  # it may have been written: the caller reads what became of it
            raise Refused(C.SYSTEM_ERROR, str(error)) from None
        return _reply(new or 0)


def _reply(revision: int, value: bytes = b"") -> Reply:
    return Reply(encode_ext(h.RegisterResponseHeader(revision=revision)), value)


MOST_NAMES: Final = 100  # groups one request may ask for
TRIES: Final = 20  # the master writes twice a second: one of few comes between
ORDERED_MS: Final = 2_500  # mqadmin waits 3 s
LOOK_S: Final = 0.05

Change = Callable[[GroupRecord], GroupRecord]


class ControllerProcessor:
    """Shows and changes the records of groups."""

    def __init__(
        self, core: NameServerCore, agreement: Agreement | None, settings: SettingsProcessor
    ) -> None:
        self._core = core
        self._agreement = agreement
        self._settings = settings

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        lane = NameServerLane.BROKERS
        return [
            row(R.CONTROLLER_GET_METADATA_INFO, self.metadata, None, lane, P.NOTHING),
            row(R.CONTROLLER_GET_SYNC_STATE_DATA, self.sync_state, None, lane, P.NOTHING),
            row(
                R.CONTROLLER_GET_REPLICA_INFO,
                self.replica_info,
                h.GetReplicaInfoRequestHeader,
                lane,
                P.NOTHING,
            ),
            row(R.CONTROLLER_ELECT_MASTER, self.elect, h.ElectMasterRequestHeader, lane, P.FILE),
            row(
                R.CLEAN_BROKER_DATA,
                self.clean,
                h.CleanControllerBrokerDataRequestHeader,
                lane,
                P.FILE,
            ),
            row(R.GET_CONTROLLER_CONFIG, self.get_settings, None, lane, P.NOTHING),
            row(R.UPDATE_CONTROLLER_CONFIG, self.update_settings, None, lane, P.MEMORY),
        ]

    def metadata(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """CONTROLLER_GET_METADATA_INFO: any name server with a controller serves like a leader."""
        need(self._agreement)
        here = ctx.peer.local
        found = h.GetMetaDataResponseHeader(
            group=self._core.config.controller.partition(":")[0],
            controller_leader_id=here,
            controller_leader_address=here,
            is_leader=True,
            peers=here,
        )
        return Reply(encode_ext(found))

    def get_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_CONTROLLER_CONFIG: the name server's."""
        need(self._agreement)
        return self._settings.get_settings(ctx, header, body)

    def update_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_CONTROLLER_CONFIG: the name server's, those that may change."""
        need(self._agreement)
        return self._settings.update_settings(ctx, header, body)

    # Reading

    def sync_state(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """CONTROLLER_GET_SYNC_STATE_DATA, of groups by name; those without a record are left out."""
        agreement = need(self._agreement)
        names: list[str] = decode_or_refuse(list[str], body)
        if len(names) > MOST_NAMES:
            raise Refused(C.SYSTEM_ERROR, f"{len(names)} names, {MOST_NAMES} are allowed at once")
        return Task(self._sync_state(agreement, names))

    async def _sync_state(self, agreement: Agreement, names: list[str]) -> Reply:
        found = b.BrokerReplicasInfo(replicas_info_table={})
        for name in dict.fromkeys(names):
            _, record = await self._read(agreement, self._cluster_of(name), name)
            if record is not None:
                found.replicas_info_table[name] = self._shown(name, record)
        return Reply(body=encode_body(found))

    def _shown(self, name: str, record: GroupRecord) -> b.ReplicasInfo:
        living = self._living(name)
        known = [
            b.ReplicaIdentity(
                broker_name=name,
                broker_id=who,
                broker_address=place.address,
                alive=place.address in living,
            )
            for who, place in sorted(record.places.items())
        ]
        return b.ReplicasInfo(
            master_broker_id=record.master or None,
            master_address=record.address_of(record.master),
            master_epoch=record.epoch,
            sync_state_set_epoch=record.set_epoch,
            in_sync_replicas=[each for each in known if each.broker_id in record.members],
            not_in_sync_replicas=[each for each in known if each.broker_id not in record.members],
        )

    def replica_info(
        self, ctx: RequestContext, header: h.GetReplicaInfoRequestHeader, body: bytes
    ) -> Task:
        """CONTROLLER_GET_REPLICA_INFO."""
        return Task(self._replica_info(need(self._agreement), header.broker_name or ""))

    async def _replica_info(self, agreement: Agreement, name: str) -> Reply:
        _, record = await self._read(agreement, self._cluster_of(name), name)
        if record is None:
            raise Refused(C.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
        found = h.GetReplicaInfoResponseHeader(
            master_broker_id=record.master or None,
            master_address=record.address_of(record.master),
            master_epoch=record.epoch,
        )
        members = b.SyncStateSet(
            sync_state_set=list(record.members), sync_state_set_epoch=record.set_epoch
        )
        return Reply(encode_ext(found), encode_body(members))

    def _cluster_of(self, name: str) -> str:
        """Of a registered broker; Apache's requests that read name no cluster."""
        return self._core.routes.find_cluster(name) or "DefaultCluster"

    def _living(self, name: str) -> set[str]:
        """Addresses of the members that are registered here."""
        return set(self._core.routes.find_members(name).values())

    async def _read(
        self, agreement: Agreement, cluster: str, name: str
    ) -> tuple[int, GroupRecord | None]:
        try:
            return await read_group(agreement, record_key(cluster, name))
        except AgreementError as error:
            raise Refused(C.SYSTEM_ERROR, str(error)) from None

    async def _change(
        self, agreement: Agreement, cluster: str, name: str, change: Change
    ) -> GroupRecord:
        """Replace a record by another one, whoever writes meanwhile.

        A change whose outcome is unknown is read again, and made only if it is not there: to make it twice is to
        make it once.
        """
        for _ in range(TRIES):
            revision, record = await self._read(agreement, cluster, name)
            if record is None:
                raise Refused(
                    C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                    f"Broker hasn't been registered: no record of {cluster}/{name}",
                )
            wanted = change(record)
            if wanted == record:
                return record
            wanted = replace(wanted, number=record.number + 1)
            try:
                if await agreement.put_if(record_key(cluster, name), revision, wanted.encode()):
                    return wanted
            except AgreementError as error:
                log.warning("record may not be written group=%s error=%s", name, error)
            await asyncio.sleep(LOOK_S)
        raise Refused(C.SYSTEM_ERROR, "the record changes all the time, or cannot be written")

    # Changing

    def elect(self, ctx: RequestContext, header: h.ElectMasterRequestHeader, body: bytes) -> Task:
        """CONTROLLER_ELECT_MASTER by an operator. The order stands in the record, and the group carries it out; with
        acceptDataLoss=true (ours) also for a member that lacks acknowledged messages."""
        agreement = need(self._agreement)
        if not header.designate_elect:
            raise Refused(
                C.CONTROLLER_INVALID_REQUEST,
                "brokers elect by the group's record: only an operator asks a controller "
                "(designateElect=true)",
            )
        accept = ext_dict(ctx.command.ext).get("acceptDataLoss", "").lower() == "true"
        return Task(self._elect(agreement, header, accept))

    async def _elect(
        self, agreement: Agreement, header: h.ElectMasterRequestHeader, accept: bool
    ) -> Reply:
        cluster, name, member = header.cluster_name, header.broker_name, header.broker_id

        def order(record: GroupRecord) -> GroupRecord:
            if record.master == member:
                raise Refused(
                    C.CONTROLLER_MASTER_STILL_EXIST,
                    f"The old master {member} is still alive, not need to elect new master for "
                    f"broker {name}",
                )
            try:
                return ordered_master(record, member, accept)
            except AgreementError as error:
                raise Refused(C.CONTROLLER_ELECT_MASTER_FAILED, str(error)) from None

        before = await self._change(agreement, cluster, name, order)
        log.warning(
            "master ordered group=%s/%s member=%d accept_data_loss=%s",
            cluster,
            name,
            member,
            accept,
        )
        deadline_ms = self._core.clock.steady_ms() + ORDERED_MS
        while self._core.clock.steady_ms() < deadline_ms:
            _, record = await self._read(agreement, cluster, name)
            if record and record.master == member and record.epoch > before.epoch:
                return _elected(cluster, name, record)
            await asyncio.sleep(LOOK_S)
        raise Refused(
            C.CONTROLLER_ELECT_MASTER_FAILED,
            f"the order stands in the record of {name}, but broker {member} has not become master within "
            f"{ORDERED_MS} ms: it does when it runs, unless others are elected meanwhile",
        )

    def clean(
        self, ctx: RequestContext, header: h.CleanControllerBrokerDataRequestHeader, body: bytes
    ) -> Task:
        """CLEAN_BROKER_DATA: forget members that will not come back."""
        agreement = need(self._agreement)
        words = (header.broker_controller_ids_to_clean or "").split(";")
        ids = {int(word) for word in words if word.strip().isdecimal() and len(word) < 19}
        if not ids:
            raise _unclean("name the ids of the brokers (-b 2;3): a group's record itself stays")
        cluster = header.cluster_name or self._cluster_of(header.broker_name)
        return Task(
            self._clean(agreement, cluster, header.broker_name, ids, header.is_clean_living_broker)
        )

    async def _clean(
        self, agreement: Agreement, cluster: str, name: str, ids: set[int], even_living: bool
    ) -> Reply:
        def without(record: GroupRecord) -> GroupRecord:
            gone = ids & (set(record.places) | set(record.members))
            living = self._living(name)
            for who in sorted(gone):
                if who == record.master:
                    raise _unclean(f"broker {who} is the master: elect another one first")
                if not even_living and record.address_of(who) in living:
                    raise _unclean(f"Broker {name}-{who} is still alive, clean up failure")
            members = tuple(who for who in record.members if who not in gone)
            if not members and record.members:
                raise _unclean(
                    f"only {list(record.members)} have all acknowledged messages: without them "
                    "nobody could be elected. Elect another one first, accepting the loss"
                )
            return replace(
                record,
                places={who: at for who, at in record.places.items() if who not in gone},
                doubtful={who: at for who, at in record.doubtful.items() if who not in gone},
                unfit={who: why for who, why in record.unfit.items() if who not in gone},
                members=members,
                set_epoch=record.set_epoch + (members != record.members),
            )

        await self._change(agreement, cluster, name, without)
        log.warning("members cleaned away group=%s/%s ids=%s", cluster, name, sorted(ids))
        return Reply()


def _unclean(words: str) -> Refused:
    return Refused(C.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, words)


def _elected(cluster: str, name: str, record: GroupRecord) -> Reply:
    found = h.ElectMasterResponseHeader(
        master_broker_id=record.master,
        master_address=record.address_of(record.master),
        master_epoch=record.epoch,
        sync_state_set_epoch=record.set_epoch,
    )
    addresses = {who: place.address for who, place in record.places.items()}
    group = b.BrokerMemberGroup(cluster=cluster, broker_name=name, broker_addrs=addresses)
    body = b.ElectMasterResponseBody(
        broker_member_group=group,
        sync_state_set=list(record.members),
        cluster=cluster,
        broker_name=name,
        broker_addrs=addresses,
    )
    return Reply(encode_ext(found), encode_body(body))
