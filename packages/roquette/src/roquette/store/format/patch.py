"""A stretch of the log that gets other bytes: what recovery fills, and what `roquette store repair` mends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from roquette.message.record import encode_blank, encode_record, record_size
from roquette.message.record_layout import Draft, Place
from roquette.message.sysflag import TRANSACTION_ROLLBACK

LOST_TOPIC: Final = b"LOST_TO_DAMAGE"
MIN_FILLER: Final = record_size(0, 1, 0, 8, 8)
_NO_HOST: Final = bytes(8)
_MAX_FILLER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Patch:
    """A stretch of the log that gets other bytes.

    Attributes:
        base: of the file. `position`, `end`: within it.
        how: `filler`, `blank`, `zeros` or `record`. `why`: the fault there.
        store_ms: of the record before.
        record: what a sound record becomes that takes the stretch in; `position` and `end` are its own then.
    """

    base: int
    position: int
    end: int
    how: str
    why: str
    store_ms: int
    record: bytes = b""

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is to be written: positions in the file and bytes; zeros elsewhere."""
        if self.how == "record":
            yield self.position, self.record
        elif self.how == "blank":
            yield self.position, encode_blank(self.end - self.position)
        elif self.how == "filler":
            at = self.position
            while at < self.end:
                size = min(self.end - at, _MAX_FILLER)
                if 0 < self.end - at - size < MIN_FILLER:
                    size -= MIN_FILLER
                yield at, _filler(size, self.base + at, self.store_ms)
                at += size


def _filler(size: int, physical: int, store_ms: int) -> bytes:
    spare = size - record_size(0, 0, 0, 8, 8)
    topic = LOST_TOPIC[: max(1, min(len(LOST_TOPIC), spare))]
    body = bytes(spare - len(topic))
    draft = Draft(topic.decode(), 0, b"", body, store_ms, _NO_HOST)
    draft.sys_flag = TRANSACTION_ROLLBACK
    return encode_record(draft, Place(topic, _NO_HOST, store_ms, 0, physical))
