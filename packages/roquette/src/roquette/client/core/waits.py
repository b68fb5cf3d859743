"""Time that messages have waited at their brokers, whatever the clocks of this machine and of the brokers show. Pure."""

from typing import Final

from roquette.client.core.bounds import BROKERS, keep

WINDOW_MS: Final = 60_000


class Waits:
    """By broker name: what separates its clock from our steady one, as messages show that hardly waited.

    A message's time of storing is the broker's, the time of its arrival ours. Their difference is the message's wait
    and a constant that the two clocks make; the least difference of the last one or two minutes stands for the
    constant. So a wait is never over-estimated, but for as long when a broker's clock is set back; it is
    under-estimated while all messages are old, as at first when a queue has filled up.
    """

    def __init__(self) -> None:
        self._least: dict[str, tuple[int, int, int]] = {}

    def waited_ms(self, broker_name: str, stored_ms: int, steady_ms: int) -> int:
        """Return how long a message that comes now has waited, ms; 0 for the first one of a broker."""
        age = steady_ms - stored_ms
        began, least, before = self._least.get(broker_name, (steady_ms, age, age))
        if steady_ms - began >= WINDOW_MS:
            before = least if steady_ms - began < 2 * WINDOW_MS else age
            began, least = steady_ms, age
        least = min(least, age)
        keep(self._least, broker_name, (began, least, before), BROKERS)
        return age - min(least, before)
