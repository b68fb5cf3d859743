"""Messages that were handed out to somebody who does not read the answer: they come again soon, as not tried."""

from typing import Final

from roquette.base.clock import Clock
from roquette.broker.pop.checkpoint import Ack, CheckPoint
from roquette.broker.pop.state import PopState
from roquette.errors import Refused

AGAIN_MS: Final = 1_000  # Apache's proxy: NACK_INVISIBLE_TIME


class GiveBack:
    """What one pop has handed out; `drop` makes it visible again (ReceiveMessageResponseStreamWriter).

    Attributes:
        runs: topic, group and queue id, where the pop began to read, and the queue offsets it hands out.
    """

    __slots__ = (
        "_clock", "_done", "_order", "_pop", "_pop_time", "broker_name", "revive_qid", "runs",
    )  # fmt: skip

    def __init__(self, pop: PopState, clock: Clock, pop_time: int, order: bool) -> None:
        self._pop = pop
        self._clock = clock
        self._pop_time = pop_time
        self._order = order
        self._done = False
        self.revive_qid = 0
        self.broker_name = ""
        self.runs: list[tuple[tuple[str, str, int], int, list[int]]] = []

    def drop(self) -> None:
        """Nobody reads the answer. When the store takes nothing now, they come when their time is over."""
        if self._done:
            return
        self._done = True
        now_ms = self._clock.now_ms()
        try:
            for key, start, offsets in self.runs:
                if self._order:
                    self._free_order(key, offsets, now_ms)
                else:
                    self._free(key, start, offsets, now_ms)
        except Refused:
            return

    def _free_order(self, key: tuple[str, str, int], offsets: list[int], now_ms: int) -> None:
        steady_ms = self._clock.steady_ms()
        visible = self._pop.orders.wall_ms(*key, steady_ms) + AGAIN_MS
        for offset in offsets:
            self._pop.orders.set_next_visible(
                *key, offset, pop_time=self._pop_time, next_visible=visible, now_ms=steady_ms
            )
        self._pop.log_order(*key, now_ms)

    def _free(self, key: tuple[str, str, int], start: int, offsets: list[int], now_ms: int) -> None:
        """A check-point of their own that ends soon, and an acknowledgement of the first (see `change_invisible_time`)."""
        topic, group, queue_id = key
        point = CheckPoint(
            start_offset=offsets[0],
            pop_time=max(now_ms, self._pop_time + 1),
            invisible_time=AGAIN_MS,
            num=len(offsets),
            queue_id=queue_id,
            topic=topic,
            group=group,
            diffs=[offset - offsets[0] for offset in offsets],
            broker_name=self.broker_name,
            suspend=True,
        )
        self._pop.log.append_check_point(point, self.revive_qid, now_ms)
        ack = Ack(
            start_offset=start,
            group=group,
            topic=topic,
            queue_id=queue_id,
            pop_time=self._pop_time,
            broker_name=self.broker_name,
            offsets=list(offsets),
        )
        self._pop.log.append(ack, self.revive_qid, deliver_ms=now_ms, now_ms=now_ms)
