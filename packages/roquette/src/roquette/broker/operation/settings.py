"""Requests of operators to a broker itself: settings (25, 26) and running state (28).

Apache: AdminBrokerProcessor.updateBrokerConfig, getBrokerConfig, prepareRuntimeInfo.
"""

import logging

from roquette.base.config import read_changes
from roquette.base.descriptors import descriptor_limit, open_descriptors
from roquette.base.form import form
from roquette.base.lifecycle import Health
from roquette.base.property_files import format_properties
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane
from roquette.broker.floor.stats import Counter
from roquette.errors import ConfigError, Refused
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire.bodies import KVTable
from roquette.wire.codes import CURRENT_VERSION, RequestCode, ResponseCode, version_text
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import ResetMasterFlushOffsetHeader
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

BOUNDS_BEAT_S = 10.0
SHOWN_LANES = frozenset(("send", "pull", "litePull", "query", "ack"))


class AdminProcessor(Feature):
    """Serves the settings and the run-time table."""

    def __init__(self, core: BrokerCore) -> None:
        self._settings = core.live
        self._store = core.store
        self._stats = core.stats
        self._disk = core.disk
        self._aside = core.writer.aside
        self._tables = core.tables
        self._shell = core.shell
        self._replicas = core.replicas

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.UPDATE_BROKER_CONFIG,
                self.update_config,
                None,
                Lane.ADMIN,
                Promise.MEMORY,
            ),
            row(
                RequestCode.RESET_MASTER_FLUSH_OFFSET,
                self.reset_master_flush_offset,
                ResetMasterFlushOffsetHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
            row(RequestCode.GET_BROKER_CONFIG, self.get_config, None, Lane.ADMIN, Promise.NOTHING),
            row(
                RequestCode.GET_BROKER_RUNTIME_INFO,
                self.show_runtime_info,
                None,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
        ]

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

    def reset_master_flush_offset(
        self, ctx: RequestContext, header: ResetMasterFlushOffsetHeader, body: bytes
    ) -> Reply:
        """RESET_MASTER_FLUSH_OFFSET: nothing, as at Apache's masters; a replica asks its master, and keeps no such offset."""
        return Reply()

    def get_config(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_CONFIG: properties text, and its version in the header."""
        version = encode_body(self._settings.version()).decode()
        return Reply(
            encode_dict({"version": version}),
            format_properties(self._settings.properties()).encode(),
        )

    def show_runtime_info(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_RUNTIME_INFO: the table that clusterList and brokerStatus show."""
        table = self._shell.runtime_info(ctx.now_ms) | self._store_numbers(ctx.now_ms)
        table |= self._traffic() | self._queues()
        return Reply(b"", encode_body(KVTable(table=dict(sorted(table.items())))))

    def beats(self) -> list[Beat]:
        """Return the beat that logs what was refused since the last one."""
        return [Beat("bounds", BOUNDS_BEAT_S, self._tell_bounds)]

    def _tell_bounds(self) -> None:
        self._settings.bounds.tell(log)

    def health(self) -> dict[str, str]:
        """Return what only this broker counts."""
        backward, aside = self._tables.backward_commits, self._aside
        strangers, last_stranger = self._shell.strangers()
        return {
            "descriptorLimit": str(descriptor_limit()),
            "openDescriptors": str(open_descriptors()),
            "wrongProtocolConnections": str(strangers),
            "wrongProtocolLast": last_stranger,
            "offsetRegressions": str(backward.accepted),
            "offsetRegressionsRefused": str(backward.refused),
            "refusedNames": self._settings.bounds.shown(),
            **aside.shown(),
            **_task_lines(self._shell.tasks.health(), aside.counts),
        }

    def _store_numbers(self, now_ms: int) -> dict[str, str]:
        store = self._store
        (total, free), root = self._disk.usage()
        ratio = _used_share(total, free)
        return {
            "brokerVersionDesc": version_text(CURRENT_VERSION),
            "brokerVersion": str(CURRENT_VERSION),
            "roquetteForm": form(),
            "brokerActive": "true",
            "bootTimestamp": str(self._stats.boot_ms),
            "runtime": _duration(now_ms - self._stats.boot_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "commitLogConfirmOffset": str(min(store.confirmed, store.max_physical_offset)),
            "commitLogDirCapacity": f"Total : {_bytes(total)}, Free : {_bytes(free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.layout.commit_log}": ratio,
            "consumeQueueDiskRatio": _used_share(*root),
            "messagesRefused": store.send_refusal or self._replicas.refusal or "no",
            "logSetAside": store.disk.kept_words,
            "dispatchBehindBytes": "0",
            "remainHowManyDataToFlush": f"{max(0, store.max_physical_offset - store.synced_offset)} B",
            "remainTransientStoreBufferNumbs": "2147483647",
            "pageCacheLockTimeMills": "0",
            "dispatchMaxBuffer": "0",
        }

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
        for name, size, capacity, age in self._shell.lanes():
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


def _task_lines(all_health: list[Health], aside: dict[str, int]) -> dict[str, str]:
    """One line a task: failures since the start, seconds since it last went well, entries set aside, last error."""
    return {
        f"task_{health.name}": f"failures={health.failures} wellAgo={health.age_s():.1f}s "
        f"setAside={aside.get(health.name, 0)} lastError={health.last_error or 'none'}"
        for health in all_health
    }


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
