"""What operators ask of a broker itself: settings (25, 26) and running state (28).

Apache: AdminBrokerProcessor.updateBrokerConfig, getBrokerConfig, prepareRuntimeInfo.
"""

from collections.abc import Callable
from typing import Protocol

from roquette.base.config import format_properties, read_changes
from roquette.base.form import form
from roquette.broker.operation.stats import BrokerStats, Counter
from roquette.errors import ConfigError, Refused
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Reply
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.disk_guard import Usage
from roquette.wire.bodies import DataVersion, KVTable
from roquette.wire.codes import CURRENT_VERSION, ResponseCode, version_text
from roquette.wire.header_codec import encode_dict
from roquette.wire.json_body import encode_body

NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}
SHOWN_LANES = frozenset(("send", "pull", "litePull", "query", "ack"))


class Settings(Protocol):
    """The broker's settings, as this processor sees them."""

    def properties(self) -> dict[str, str]:
        """Every setting under Apache's key."""
        ...

    def update(self, changes: dict[str, str]) -> None:
        """Apply allowed changes; raises ConfigError for the others."""
        ...

    def version(self) -> DataVersion:
        """The version of the settings."""
        ...


class AdminProcessor:
    """Serves the settings and the run-time table.

    Args:
        lanes: name, size, capacity, age of the oldest request in ms: the dispatcher's queues.
        delay_progress: level -> (delivered offset, end offset) of the delay queues.
        disk: total and free bytes of the commit log's disk, and of the root's.
        more: what else the run-time table shows.
        timer: the timer's lines of the run-time table, by the time.
    """

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        stats: BrokerStats,
        *,
        lanes: Callable[[], list[tuple[str, int, int, int]]],
        delay_progress: Callable[[], dict[int, tuple[int, int]]],
        disk: Callable[[], tuple[Usage, Usage]],
        timer: Callable[[int], dict[str, str]] = lambda _: NO_TIMER,
        active: Callable[[], bool] = lambda: True,
        more: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._lanes = lanes
        self._delay_progress = delay_progress
        self._disk = disk
        self._timer = timer
        self._active = active
        self._more = more

    def update_config(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_BROKER_CONFIG: only settings that may change while running, never paths or addresses."""
        try:
            changes = read_changes(body)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if not changes:
            raise Refused(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        try:
            self._settings.update(changes)
        except ConfigError as error:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Can not update config in black list. {error}"
            ) from None
        return Reply()

    def get_config(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_CONFIG: properties text, and its version in the header."""
        version = encode_body(self._settings.version()).decode()
        return Reply(
            encode_dict({"version": version}),
            format_properties(self._settings.properties()).encode(),
        )

    def runtime_info(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_RUNTIME_INFO: the table that clusterList and brokerStatus show."""
        table = self._store_numbers(ctx.now_ms) | self._traffic() | self._queues() | self._more()
        return Reply(b"", encode_body(KVTable(table=dict(sorted(table.items())))))

    def _store_numbers(self, now_ms: int) -> dict[str, str]:
        store = self._store
        (total, free), root = self._disk()
        ratio = _used_share(total, free)
        table = {
            "brokerVersionDesc": version_text(CURRENT_VERSION),
            "brokerVersion": str(CURRENT_VERSION),
            "roquetteForm": form(),
            "brokerActive": "true" if self._active() else "false",
            "bootTimestamp": str(self._stats.boot_ms),
            "runtime": _duration(now_ms - self._stats.boot_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "commitLogDirCapacity": f"Total : {_bytes(total)}, Free : {_bytes(free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.layout.commit_log}": ratio,
            "consumeQueueDiskRatio": _used_share(*root),
            "messagesRefused": store.send_refusal or "no",
            "dispatchBehindBytes": "0",
            "remainHowManyDataToFlush": f"{max(0, store.max_physical_offset - store.synced_offset)} B",
            "remainTransientStoreBufferNumbs": "2147483647",
            "pageCacheLockTimeMills": "0",
            "dispatchMaxBuffer": "0",
        }
        table.update(self._timer(now_ms))
        for level, (delivered, end) in sorted(self._delay_progress().items()):
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{end}"
        return table

    def _traffic(self) -> dict[str, str]:
        stats = self._stats
        put, got = stats.put_messages, stats.get_messages
        table = {
            "putTps": put.rates_text(),
            "getFoundTps": stats.get_found.rates_text(),
            "getMissTps": stats.get_miss.rates_text(),
            "getTransferredTps": stats.transferred.rates_text(),
            "getTransferedTps": stats.transferred.rates_text(),
            "getTotalTps": _sum_rates(stats.get_found, stats.get_miss),
            "putMessageTimesTotal": str(stats.put_times.total),
            "putMessageSizeTotal": str(stats.put_bytes.total),
            "putMessageFailedTimes": str(stats.put_failed.total),
            "putMessageAverageSize": repr(stats.put_bytes.total / put.total if put.total else 0.0),
            "putMessageEntireTimeMax": str(stats.put_durations.max_ms),
            "putMessageDistributeTime": stats.put_durations.distribution(),
            "putLatency99": f"{stats.put_durations.percentile(0.99):.2f}",
            "putLatency999": f"{stats.put_durations.percentile(0.999):.2f}",
            "getMessageEntireTimeMax": str(stats.get_durations.max_ms),
        }
        for name, counter in (("Put", put), ("Get", got)):
            table[f"msg{name}TotalYesterdayMorning"] = str(counter.yesterday_start)
            table[f"msg{name}TotalTodayMorning"] = str(counter.today_start)
            table[f"msg{name}TotalTodayNow"] = str(counter.total)
        return table

    def _queues(self) -> dict[str, str]:
        table: dict[str, str] = {}
        for name, size, capacity, age in self._lanes():
            if (
                name == "EndTransaction"
            ):  # Apache shows no age here, and the size under its own name
                table["EndTransactionQueueSize"] = str(size)
                table["EndTransactionThreadPoolQueueCapacity"] = str(capacity)
            elif name in SHOWN_LANES:
                table[f"{name}ThreadPoolQueueSize"] = str(size)
                table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
                table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(age)
        return table


def _used_share(total: int, free: int) -> str:
    """A ratio as Java prints a double."""
    return repr((total - free) / total if total > 0 else 0.0)


def _bytes(size: int) -> str:
    """As Apache's MixAll.humanReadableByteCount shows sizes: `252.0 GiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def _sum_rates(first: Counter, second: Counter) -> str:
    return " ".join(repr(first.rate(seconds) + second.rate(seconds)) for seconds in (10, 60, 600))


def _duration(elapsed_ms: int) -> str:
    """As BrokerController shows it: `[ 0 days, 1 hours, 2 minutes, 3 seconds ]`."""
    seconds = elapsed_ms // 1000
    return (
        f"[ {seconds // 86400} days, {seconds // 3600 % 24} hours, "
        f"{seconds // 60 % 60} minutes, {seconds % 60} seconds ]"
    )
