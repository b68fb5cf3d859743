"""The id of a member that was not told one: a free one, entered in the group's record."""

import asyncio
import logging
from typing import Final

import msgspec

from roquette.broker.group.member_file import RememberedState
from roquette.errors import AgreementError
from roquette.replication.agreement import Agreement, read_group
from roquette.replication.record import GroupRecord, Life, MemberPlace, free_id

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
