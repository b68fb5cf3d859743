"""roquetteMember.json: what a member remembers of itself beside its log."""

import asyncio
import logging
import os
from typing import Final

import msgspec

from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.errors import AgreementError, ConfigError
from roquette.replication.record import (
    Agreement,
    GroupRecord,
    Life,
    MemberPlace,
    OwnStore,
    free_id,
    read_group,
)

IDENTITY: Final = "roquetteMember.json"


class RememberedState(msgspec.Struct, kw_only=True):
    """Memory that a member has of itself beside its log.

    Attributes:
        group: key of its record. id: in the group; 0: none yet.
        boot: of the machine when it was written. clean: it has stopped in order since.
        store: a name drawn at random. openings: names of the last one that stood in the record, and of all since.
        record_group: whose record it has been in.
        seen: the number of that record when this was written. known: ids of those in the group then.
        sync: SYNC_FLUSH in the life that wrote this; None: an older version. folder: the number of the store's
            directory, which a copy has not.
    """

    group: str
    id: int
    boot: str
    clean: bool
    store: str = ""
    openings: list[str] = []
    record_group: str = ""
    seen: int = 0
    known: list[int] = []
    sync: bool | None = None
    folder: int = 0

    def note(self, record: GroupRecord) -> None:
        """Note what the record says, for when an older one is put in its place: that one may not know everybody."""
        self.record_group = record.group or self.record_group
        self.seen = record.number
        lacks = self.known if record.set_back else ()
        self.known = sorted({*record.places, *lacks})


class MemberFile:
    """Reads and writes it. All calls block."""

    def __init__(self, files: Files, root: str, key: str) -> None:
        self._files = files
        self._root = root
        self._key = key
        self._path = os.path.join(root, IDENTITY)

    def load(self, asked: int, clean: bool) -> RememberedState:
        """Read the state that stands there, or make that of a new store.

        Args:
            asked: the setting brokerId. clean: of a store without the file.

        Raises:
            ConfigError: it is not readable, of another group, or of another id than the one asked for.
        """
        if not self._files.exists(self._path):
            return RememberedState(group=self._key, id=asked, boot="", clean=clean)
        try:
            found = msgspec.json.decode(self._files.read_bytes(self._path), type=RememberedState)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path} is not readable: {error}. Remove it, and set brokerId to this member's id"
            ) from None
        if found.group != self._key:
            raise ConfigError(
                f"the store {self._root} belongs to the group {found.group}, not to {self._key}: set brokerName and "
                "brokerClusterName back, or use another store"
            )
        if asked not in (0, found.id):
            raise ConfigError(
                f"the store {self._root} is broker {found.id} of its group, and brokerId={asked} is set: set "
                f"brokerId={found.id} back, or use an empty store for broker {asked}"
            )
        return found

    def save(self, kept: RememberedState) -> None:
        """Replace it."""
        self._files.make_dirs(self._root)
        self._files.write_atomic(self._path, msgspec.json.encode(kept))

    def _here(self) -> tuple[str, int]:
        """Return which boot of the machine this is, and which directory."""
        return self._files.boot_id.hex(), self._files.folder_id(self._root)

    def runs(self, kept: RememberedState, sync: bool) -> None:
        """From now on a power cut may take something back; `kept` is to be saved."""
        kept.boot, kept.folder = self._here()
        kept.clean, kept.sync = False, sync

    def begin_life(
        self, kept: RememberedState, entropy: Entropy, sync: bool, damage: str, empty: bool
    ) -> OwnStore:
        """Another opening of the store; `kept` is to be saved before anybody hears of it.

        Args:
            sync: SYNC_FLUSH now. damage: what the opening found, in words. empty: there is no message and no epoch.
        """
        boot, folder = self._here()
        same_boot = bool(boot) and kept.boot == boot  # where the system can tell
        was_sync = sync if kept.sync is None else kept.sync
        copied = kept.folder not in (0, folder) and not kept.clean
        fault = damage or (
            "the store's directory is a copy of one that was in use" if copied else ""
        )
        before = tuple(kept.openings)
        kept.store = kept.store or entropy.secret(8)
        kept.openings.append(entropy.secret(8))
        kept.folder = kept.folder or folder
        return OwnStore(
            name=kept.store,
            opening=kept.openings[-1],
            before=before,
            group=kept.record_group,
            seen=kept.seen,
            known=tuple(kept.known),
            fault=fault,
            empty=empty,
            clean=(was_sync or kept.clean or same_boot) and not fault,
            fresh=entropy.secret(16),
        )


# The id of a member that was not told one: a free one, entered in the group's record.


log = logging.getLogger("roquette.broker.replication")

JOIN_S: Final = 1.0  # between two tries to get a place in the record


async def find_id(kept: RememberedState, agreement: Agreement, key: str, place: MemberPlace) -> int:
    """The own id, or a free one, entered in the record so that nobody else gets it: waits until that can be written. One
    that was drawn while the record was lost may be another's, whom this process must not end."""
    own = kept.id
    while True:
        try:
            revision, found = await read_group(agreement, key)
            record = found or GroupRecord()
            if own and record.stores.get(own, Life(kept.store, "")).store == kept.store:
                return own
            held = [one for one, at in record.places.items() if at == place and one != own]
            if held:
                return held[0]
            mine = free_id(record)
            claimed = msgspec.structs.replace(
                record, number=record.number + 1, places=record.places | {mine: place}
            )
            if await agreement.put_if(key, revision, claimed.encode()):
                return mine
        except AgreementError as error:
            log.warning("no place in the group yet key=%s: %s", key, error)
            await asyncio.sleep(JOIN_S)
