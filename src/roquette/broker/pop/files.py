"""The two files of POP under `config/`: messageRequestMode.json and consumerOrderInfo.json."""

from roquette.base.clock import Clock
from roquette.broker.files.config_files import ConfigFiles, Saver
from roquette.broker.pop.state import PopState
from roquette.wire.bodies import (
    ConsumerOrderInfoSerializeWrapper,
    MessageRequestModeSerializeWrapper,
)

MODES = "messageRequestMode.json"
ORDERS = "consumerOrderInfo.json"


class PopFiles:
    """Loads and saves what POP keeps besides the revive log.

    Attributes:
        mode_file: of the request modes.
    """

    def __init__(self, files: ConfigFiles, pop: PopState, clock: Clock) -> None:
        self._files = files
        self._pop = pop
        self._clock = clock
        self.mode_file = Saver(files, MODES, pop.modes.to_wrapper)
        self._order_file = Saver(files, ORDERS, pop.orders.to_wrapper)

    def load(self) -> None:
        """Read the files; raises StoreError when one exists and cannot be read."""
        modes = self._files.load(MODES, MessageRequestModeSerializeWrapper)
        if modes is not None:
            self._pop.modes.load(modes.message_request_mode_map)
        orders = self._files.load(ORDERS, ConsumerOrderInfoSerializeWrapper)
        if orders is not None:
            self._pop.orders.load(orders.table, self._clock.steady_ms())

    async def save_modes(self) -> None:
        """Write the modes, which have changed; raises Refused when that cannot be done now."""
        self.mode_file.mark()
        await self.mode_file.confirm()

    async def save_orders(self) -> None:
        """The beat of orderly pops."""
        if self._pop.orders.dirty:
            self._pop.orders.dirty = False
            self._order_file.mark()
        await self._order_file.try_save()

    def save_all_now(self) -> None:
        """Write the orderly pops, blocking: the end of the broker."""
        self._order_file.mark()
        self._order_file.try_save_now()
