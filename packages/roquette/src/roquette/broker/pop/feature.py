"""POP: messages are handed out for a while, and come again unless they are acknowledged."""

import asyncio

from roquette.base import metric_families as m
from roquette.base.exposition import MetricTable, one
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.floor.config_files import ORDERS, Saver, SaveSteps
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.floor.steps import run_steps
from roquette.broker.pop.acknowledge import AckProcessor
from roquette.broker.pop.checks import PopChecks
from roquette.broker.pop.hand_out import PopProcessor
from roquette.broker.pop.inspect import PopInfoProcessor
from roquette.broker.pop.polling import PollHold
from roquette.broker.pop.reading import PopOffsets
from roquette.broker.pop.state import PopState
from roquette.remoting.promises import Promise
from roquette.remoting.request import Row, row
from roquette.store.format.results import Arrival
from roquette.wire import headers as h
from roquette.wire.bodies import ConsumerOrderInfoSerializeWrapper
from roquette.wire.codes import RequestCode

EXPIRY_BEAT_S = 0.1
CLEAN_BEAT_S = 10.0


class PopFeature(Feature):
    """Serves POP's requests, follows the revive log, and runs waiting requests again.

    Life of a message: `hand_out` writes a check-point into the revive log and hands it out; `acknowledge` writes its
    acknowledgement behind; `revive` reads both, joins them, and puts again what nobody acknowledged in time.

    Attributes:
        pop: what POP keeps.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._saved = core.saved
        self.pop = pop = PopState(core, self._wake)
        steps = SaveSteps(picture=pop.reviver.picture_orders, written=pop.reviver.orders_written)
        self._order_file = Saver(core.files, ORDERS, pop.orders.to_wrapper, steps=steps)
        checks, places = PopChecks(core), PopOffsets(core, pop.orders)
        self._pop = PopProcessor(core, pop, checks, places)
        self._ack = AckProcessor(core, pop, checks)
        self._info = PopInfoProcessor(core, pop, checks, places)

    def rows(self) -> list[Row]:
        """What it serves."""
        code, promise, pull = RequestCode, Promise, Lane.PULL
        pop, ack, info = self._pop, self._ack, self._info
        return [
            row(code.POP_MESSAGE, pop.pop_message, h.PopMessageRequestHeader, pull, promise.LOG),
            row(
                code.PEEK_MESSAGE,
                info.peek_message,
                h.PeekMessageRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.NOTIFICATION,
                info.notification,
                h.NotificationRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.POLLING_INFO,
                info.polling_info,
                h.PollingInfoRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.ACK_MESSAGE, ack.ack_message, h.AckMessageRequestHeader, Lane.ACK, promise.LOG
            ),
            row(code.POP_ROLLBACK, info.roll_back, None, Lane.ADMIN, promise.NOTHING),
            row(code.BATCH_ACK_MESSAGE, ack.batch_ack, None, Lane.ACK, promise.LOG),
            row(
                code.CHANGE_MESSAGE_INVISIBLETIME,
                ack.change_invisible_time,
                h.ChangeInvisibleTimeRequestHeader,
                Lane.ACK,
                promise.LOG,
            ),
        ]

    def beats(self) -> list[Beat]:
        """Deadlines, the file of orderly pops, and what is gone of them."""
        live = self._core.live
        return [
            Beat("pop-expiry", EXPIRY_BEAT_S, self._expire),
            Beat("order-info", live.offset_interval_s, self._save_orders),
            Beat("order-clean", CLEAN_BEAT_S, self._clean),
        ]

    def load(self, start: Start) -> None:
        """Read the file, then the revive log."""
        pop, files = self.pop, self._core.files
        self._saved.before_offsets(self._settle)
        pop.orders.start(start.now_ms, start.steady_ms)
        orders = files.load(ORDERS, ConsumerOrderInfoSerializeWrapper)
        if orders is not None:
            pop.orders.load(orders.table, start.steady_ms)
        pop.reviver.recover(start.now_ms, start.steady_ms)

    def _settle(self) -> None:
        settled = not (self.pop.orders.dirty or self._order_file.dirty)
        self.pop.reviver.snapshot(self._core.clock.now_ms(), settled=settled)

    async def start(self, tasks: Tasks) -> None:
        """Follow the revive log."""
        tasks.keep("revive", self._revive)

    async def _revive(self, health: Health) -> None:
        core = self._core
        await run_steps(
            self.pop.reviver.step,
            core.clock,
            core.shell.end_turn,
            "unacknowledged messages wait",
            health,
        )

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Pops that are out, and what came of them."""
        reviver = self.pop.reviver
        return [
            one(m.POP_OUT, reviver.out()),
            one(m.REVIVE_LAG, reviver.behind()),
            one(m.REVIVED, reviver.revived),
        ]

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Run again the pops that wait for these messages."""
        if self.pop.waiting:
            self._run(self.pop.on_arrivals(arrivals), may_hold=True)

    def _expire(self) -> None:
        now_ms = self._core.clock.steady_ms()
        self._run(self.pop.expire(now_ms), may_hold=False)
        self._run(self.pop.freed(now_ms), may_hold=True)

    def _clean(self) -> None:
        self.pop.clean(self._core.clock.steady_ms())

    def drain(self) -> None:
        """Answer all requests that wait."""
        self._run(self.pop.drain(), may_hold=False)

    def _run(self, due: list[PollHold], *, may_hold: bool) -> None:
        for hold in due:
            job = hold.job
            if job is not None:
                self._core.shell.rerun(job, may_hold)  # or let it go
            if may_hold and (job is None or job.peer.closed or job.cancelled):
                # Its client is gone: the message is another's.
                due.extend(self.pop.another(hold))

    def _wake(self, hold: PollHold) -> None:
        asyncio.get_running_loop().call_soon(lambda: self._run([hold], may_hold=True))

    def forget_topic(self, topic: str) -> None:
        """Its orderly pops go."""
        self.pop.forget_topic(topic)

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """Its orderly pops go."""
        self.pop.forget_group(group)

    async def _save_orders(self) -> None:
        if self.pop.orders.dirty:
            self.pop.orders.dirty = False
            self._order_file.mark()
        await self._order_file.try_save()

    def save_now(self) -> None:
        """Write the orderly pops."""
        self._order_file.mark()
        self._order_file.try_save_now()
