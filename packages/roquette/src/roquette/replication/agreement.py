"""The seam to the one place where a group's record stands: read it, and replace it only if nobody else has."""

from typing import NamedTuple, Protocol

from roquette.replication.record import GroupRecord, decode_record


class Stored(NamedTuple):
    """Value that stands under a key.

    Attributes:
        revision: of this content, opaque; 0: there is none.
    """

    revision: int
    value: bytes


class Agreement(Protocol):
    """A linearizable register per key: etcd, or a file of one name server.

    A call that fails with AgreementError may have been carried out nevertheless (an answer was lost): the caller
    reads, and repeats the same `put_if` until a read shows what became of it.
    """

    async def get(self, key: str) -> Stored:
        """The newest content, never an older one than any earlier answer. Raises AgreementError."""
        ...

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """Replace the content whose revision is `revision` (0: there is none yet); the new revision, or None: it is
        another one. Raises AgreementError: the outcome is unknown."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


async def read_group(agreement: Agreement, key: str) -> tuple[int, GroupRecord | None]:
    """A group's record and its revision; 0, None: there is none. Raises AgreementError."""
    stored = await agreement.get(key)
    return stored.revision, decode_record(stored.value) if stored.revision else None
