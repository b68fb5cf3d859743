"""The end of a turn: what was appended is written before any reply leaves, then those who wait see it. HOT."""

from collections.abc import Callable, Sequence

from roquette.broker.floor.clock import BrokerClock
from roquette.broker.floor.log_sync import LogSync
from roquette.broker.floor.stats import BrokerStats
from roquette.errors import StoreError
from roquette.store.message_store import MessageStore


class Turn:
    """What a broker does once for all requests of a turn.

    Args:
        drop_replies: takes this turn's replies back.
        arrived: are told of messages that have become visible.
        written: are told where the written log ends; False takes the turn's replies back.
        sync_flush: a message is safe, and visible, when it is on the disk.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: BrokerClock,
        stats: BrokerStats,
        log_sync: LogSync,
        drop_replies: Callable[[], object],
        arrived: Sequence[Callable[..., object]],
        written: Sequence[Callable[..., object]],
        *,
        sync_flush: bool,
    ) -> None:
        self._store: MessageStore = store
        self._clock: BrokerClock = clock
        self._stats: BrokerStats = stats
        self._log_sync: LogSync = log_sync
        self._drop_replies: Callable[[], object] = drop_replies
        self._arrived: list[Callable[..., object]] = list(arrived)
        self._written: list[Callable[..., object]] = list(written)
        self._sync_flush: bool = sync_flush

    def end(self) -> None:
        """Let out what a turn has appended and changed. In this order: the log is written; who waits for the messages
        runs again; what these appended is written; features write down what else has changed; a sync begins, and
        replies leave (they wait for it under SYNC_FLUSH). What fails takes the turn's replies with it."""
        store = self._store
        began_ms = self._clock.steady_ms()
        if not self._write_log():
            return
        self._stats.put_took(self._clock.steady_ms() - began_ms)
        log_end = store.max_physical_offset
        self.wake()
        if store.max_physical_offset > log_end:
            if not self._write_log():
                return
            log_end = store.max_physical_offset
        for written in self._written:
            if not written(log_end):
                self._drop_replies()
        if self._sync_flush and store.synced_offset < log_end:
            self._log_sync.request()  # whoever appended it: only a sync makes it safe, and visible
        else:
            self._log_sync.kick()

    def _write_log(self) -> bool:
        try:
            self._store.write_pending()
        except StoreError as error:
            self._drop_replies()
            self._log_sync.abandon(str(error))
            return False
        return True

    def wake(self) -> None:
        """Run again what waits for messages that have become visible."""
        arrivals = self._store.take_arrivals()
        if arrivals:
            for arrived in self._arrived:
                arrived(arrivals)
