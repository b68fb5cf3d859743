"""How old what a group takes is, without a look at the log: from the ends that topics had at earlier times. Pure."""

from bisect import bisect_right
from typing import Final

KEPT: Final = 32  # times of a topic; when there are more, every second one goes, and later ones are further apart
TOPICS: Final = 10_000  # that are watched


class LagTimes:
    """Ends of topics (all queues added up) at times of the past, steady ms."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[list[int], list[int]]] = {}  # topic -> ends, times; both grow

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, topic: str, end: int, now_ms: int) -> None:
        """A topic ends here now."""
        known = self._ends.get(topic)
        if known is None:
            if len(self._ends) < TOPICS:
                self._ends[topic] = ([end], [now_ms])
            return
        ends, times = known
        if end < ends[-1]:  # its queues were made again
            self._ends[topic] = ([end], [now_ms])
        if end <= ends[-1]:
            return
        ends.append(end)
        times.append(now_ms)
        if len(ends) > KEPT:
            del ends[1:-1:2]
            del times[1:-1:2]

    def behind_ms(self, topic: str, consumed: int, end: int, now_ms: int) -> int | None:
        """For how long, about, what follows the first `consumed` messages has been there; 0 when there is none.

        Less than it really is by at most the distance of two looks that are kept. None: nothing is known of the topic.
        """
        if consumed >= end:
            return 0
        known = self._ends.get(topic)
        if known is None:
            return None
        ends, times = known
        at = bisect_right(ends, consumed)  # the first look that saw it
        return 0 if at == len(ends) else max(0, now_ms - times[at])

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._ends.pop(topic, None)
