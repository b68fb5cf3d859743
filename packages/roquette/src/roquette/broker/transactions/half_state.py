"""Which half messages have ended, and how far both transaction queues are worked off. Pure.

A half message is known by its queue offset in RMQ_SYS_TRANS_HALF_TOPIC. It *ends* when it is committed, rolled
back, discarded, or put again under another offset (a check puts a copy): from then on only the copy counts.
Everything before `base` has ended. What ended behind it is one bit each, in pages that go when `base` has passed, so that
memory follows the traffic between the oldest open half message and the newest one, an eighth of a byte each.

Apache: TransactionalMessageServiceImpl.check keeps removeMap, opMsgMap and doneOpOffset instead, rebuilt in each pass.
"""

from collections import OrderedDict
from typing import Final

PAGE_BITS: Final = 4096
MAX_COPIES: Final = 65_536
MAX_MARKS: Final = 64
_FULL: Final = (1 << PAGE_BITS) - 1


class HalfState:
    """The open and the ended half messages of one broker, without their content."""

    def __init__(self) -> None:
        self.base = 0
        self.op_offset = 0  # ops before this queue offset speak only of half messages before `base`
        self._pages: dict[int, int] = {}  # page number -> bits of the ended
        self._copies: OrderedDict[int, int] = OrderedDict()  # physical offset -> its copy's
        self._marks: list[tuple[int, int]] = []  # (end of the half queue, end of the op queue then)

    def load(self, base: int, op_offset: int) -> None:
        """Start over: everything before `base` has ended, nothing else is known."""
        self.base, self.op_offset = base, op_offset
        self._pages.clear()
        self._copies.clear()
        self._marks.clear()

    def end(self, queue_offset: int) -> None:
        """A half message has ended; saying it twice is harmless."""
        if queue_offset >= self.base:
            page, bit = divmod(queue_offset, PAGE_BITS)
            self._pages[page] = self._pages.get(page, 0) | 1 << bit

    def ended(self, queue_offset: int) -> bool:
        """Whether a half message has ended."""
        if queue_offset < self.base:
            return True
        page, bit = divmod(queue_offset, PAGE_BITS)
        return bool(self._pages.get(page, 0) >> bit & 1)

    def open_before(self, limit: int) -> int:
        """How many half messages before `limit` have not ended."""
        first, bit = divmod(self.base, PAGE_BITS)
        ended = 0
        for page, bits in self._pages.items():
            if page >= first:
                ended += (bits >> bit if page == first else bits).bit_count()
        return max(0, limit - self.base - ended)

    def next_open(self, queue_offset: int, limit: int) -> int:
        """The first offset from `queue_offset` on that has not ended; `limit` when none before it is open."""
        offset = max(queue_offset, self.base)
        while offset < limit:
            page, bit = divmod(offset, PAGE_BITS)
            bits = self._pages.get(page, 0) >> bit
            if bits == _FULL >> bit:
                offset += PAGE_BITS - bit
                continue
            ones = (
                bits ^ (bits + 1)
            ).bit_length() - 1  # how many ended ones follow each other here
            return min(offset + ones, limit)
        return limit

    def advance(self, limit: int) -> None:
        """Move `base` over what has ended, up to `limit` (the end of the half queue)."""
        base = self.next_open(self.base, limit)
        for page in range(self.base // PAGE_BITS, base // PAGE_BITS):
            self._pages.pop(page, None)
        self.base = base
        while self._marks and self._marks[0][0] <= base:
            self.op_offset = self._marks.pop(0)[1]

    def skip(self, base: int) -> None:
        """The log no longer holds what is before `base`."""
        for page in [page for page in self._pages if (page + 1) * PAGE_BITS <= base]:
            del self._pages[page]
        self.base = max(self.base, base)

    def mark(self, half_end: int, op_end: int) -> None:
        """Where both queues end now: the ops there are will not be needed when `base` has come to `half_end`."""
        if self._marks and self._marks[-1][0] == half_end:
            self._marks[-1] = (half_end, op_end)
            return
        self._marks.append((half_end, op_end))
        if len(self._marks) > MAX_MARKS:
            del self._marks[1::2]

    def copied(self, physical_offset: int, copy_offset: int) -> None:
        """The half message at a physical offset goes on as a copy at another one."""
        self._copies[physical_offset] = copy_offset
        if len(self._copies) > MAX_COPIES:
            self._copies.popitem(last=False)

    def newest(self, physical_offset: int) -> int:
        """Where the newest copy of a half message is, if it was copied and that is still remembered."""
        while (copy := self._copies.get(physical_offset)) is not None:
            physical_offset = copy
        return physical_offset

    @property
    def pages(self) -> int:
        """Pages kept, for those who watch memory."""
        return len(self._pages)
