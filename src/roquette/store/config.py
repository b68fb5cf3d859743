"""The store's settings, under Apache's keys and with Apache's defaults (MessageStoreConfig)."""

import enum
from dataclasses import dataclass

from roquette.base.config import setting


class FlushDiskType(enum.Enum):
    """When a send is acknowledged."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where data lives, how big its files are, when it is synced and when it is deleted."""

    root_dir: str = setting(
        "~/store", java="storePathRootDir", help="Directory of everything the store keeps."
    )
    commit_log_dir: str | None = setting(
        None,
        java="storePathCommitLog",
        help="Directory of the commit log; default is commitlog under storePathRootDir.",
    )
    segment_size: int = setting(
        1 << 30, java="mappedFileSizeCommitLog", help="Bytes of one commit log file."
    )
    queue_file_size: int = setting(
        6_000_000,
        java="mappedFileSizeConsumeQueue",
        help="Bytes of one consume queue file; rounded up to whole units of 20 bytes.",
    )
    max_message_size: int = setting(
        4 << 20,
        java="maxMessageSize",
        help="Largest message body in bytes.",
        mutable=True,
        least=1,
        most=1 << 30,
    )
    index_enable: bool = setting(
        True, java="messageIndexEnable", help="Index messages by KEYS and by unique id."
    )
    index_safe: bool = setting(
        False,
        java="messageIndexSafe",
        help="Accepted for Apache's sake: our index always recovers.",
    )
    max_hash_slots: int = setting(
        5_000_000, java="maxHashSlotNum", help="Hash slots of one index file."
    )
    max_index_entries: int = setting(
        20_000_000, java="maxIndexNum", help="Entries of one index file."
    )
    max_query_count: int = setting(
        64,
        java="maxMsgsNumBatch",
        help="Most messages one query by key returns.",
        mutable=True,
        least=1,
        most=32_768,
    )
    default_query_max_count: int = setting(
        32, java="defaultQueryMaxNum", help="Most messages a query by unique id returns."
    )
    flush_disk_type: FlushDiskType = setting(  # noqa: RUF009 - a field, whatever ruff thinks
        FlushDiskType.ASYNC_FLUSH,
        java="flushDiskType",
        help="ASYNC_FLUSH answers a send at once, SYNC_FLUSH after the data is on the disk.",
    )
    flush_interval_ms: int = setting(
        500, java="flushIntervalCommitLog", help="Longest time written data waits for a sync."
    )
    sync_flush_timeout_ms: int = setting(
        5000, java="syncFlushTimeout", help="A SYNC_FLUSH send waits this long for its sync."
    )
    queue_flush_interval_ms: int = setting(
        1000, java="flushIntervalConsumeQueue", help="How often consume queues are synced."
    )
    queue_flush_least_pages: int = setting(
        2,
        java="flushConsumeQueueLeastPages",
        help="Pages of 4 KiB a consume queue must have unsynced to be worth a sync.",
    )
    queue_flush_thorough_interval_ms: int = setting(
        60_000,
        java="flushConsumeQueueThoroughInterval",
        help="How often all consume queues are synced and the checkpoint moves.",
    )
    file_reserved_hours: int = setting(
        72,
        java="fileReservedTime",
        help="Hours a commit log file is kept.",
        mutable=True,
        least=1,
        most=1 << 20,
    )
    file_reserved_bytes: int = setting(
        0,
        java="fileReservedBytes",
        help="Bytes of commit log that are kept, at any hour and whatever its age; 0 sets no limit by size.",
        mutable=True,
        most=2**63 - 1,
    )
    delete_when: str = setting(
        "04",
        java="deleteWhen",
        help="Hours of the day, split by ;, at which expired files are deleted.",
        mutable=True,
        form=r"\s*|\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?",
    )
    delete_batch: int = setting(
        10,
        java="deleteFileBatchMax",
        help="Most commit log files deleted in one pass.",
        mutable=True,
        least=1,
        most=1 << 20,
    )
    clean_interval_ms: int = setting(
        10_000, java="cleanResourceInterval", help="How often deletion is considered."
    )
    clean_forcibly_enable: bool = setting(
        True,
        java="cleanFileForciblyEnable",
        help="Delete unexpired files too when the disk is fuller than diskSpaceCleanForciblyRatio.",
        mutable=True,
    )
    disk_max_used_ratio: int = setting(
        75,
        java="diskMaxUsedSpaceRatio",
        help="Disk use in percent above which expired files are deleted at any hour; 10 to 95.",
        mutable=True,
        least=1,
        most=100,
    )
    disk_clean_forcibly_ratio: int = setting(
        85,
        java="diskSpaceCleanForciblyRatio",
        help="Disk use in percent above which the oldest files go, expired or not; 30 to 85.",
        mutable=True,
        least=1,
        most=100,
    )
    disk_clean_forcibly_free: int = setting(
        32 << 30,
        java="diskCleanForciblyFreeBytes",
        help="The oldest files go only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        mutable=True,
        most=2**63 - 1,
    )
    disk_warning_ratio: int = setting(
        90,
        java="diskSpaceWarningLevelRatio",
        help="Disk use in percent above which messages are refused; 35 to 90.",
        mutable=True,
        least=1,
        most=100,
    )
    disk_full_free: int = setting(
        16 << 30,
        java="diskFullFreeBytes",
        help="Messages are refused only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        mutable=True,
        most=2**63 - 1,
    )
    disk_reserve: int | None = setting(
        None,
        java="diskReserveBytes",
        help="Bytes kept back for offsets and deletions on a full disk; default is a 32nd of a commit log file.",
    )
    check_crc_on_recover: bool = setting(
        True, java="checkCRCOnRecover", help="Compare every body with its CRC in recovery."
    )
    max_count_in_memory: int = setting(
        32, java="maxTransferCountOnMessageInMemory", help="Most messages of one recent read."
    )
    max_bytes_in_memory: int = setting(
        256 << 10, java="maxTransferBytesOnMessageInMemory", help="Most bytes of one recent read."
    )
    max_count_on_disk: int = setting(
        8, java="maxTransferCountOnMessageInDisk", help="Most messages of one old read."
    )
    max_bytes_on_disk: int = setting(
        64 << 10, java="maxTransferBytesOnMessageInDisk", help="Most bytes of one old read."
    )
    memory_ratio: int = setting(
        40,
        java="accessMessageInMemoryMaxRatio",
        help="Percent of physical memory that recent log is assumed to be cached in.",
    )
    delay_levels: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        java="messageDelayLevel",
        help="Delays of levels 1, 2, 3 and so on; units are s, m, h and d.",
    )
    timer_wheel_enable: bool = setting(
        True, java="timerWheelEnable", help="Serve messages with an arbitrary time of delivery."
    )
    timer_precision_ms: int = setting(
        1000,
        java="timerPrecisionMs",
        help="Width of a timer slot: 100, 200, 500 or 1000 ms; other values are rounded down.",
    )
    timer_roll_window_slots: int = setting(
        2 * 86_400,
        java="timerRollWindowSlot",
        help="Messages further ahead than so many slots are put again on the way.",
    )
    timer_flush_interval_ms: int = setting(
        1000, java="timerFlushIntervalMs", help="How often the timer's progress is synced."
    )
    timer_log_file_size: int = setting(
        100 << 20, java="mappedFileSizeTimerLog", help="Bytes of one timer log file."
    )
    timer_max_delay_sec: int = setting(
        3 * 86_400,
        java="timerMaxDelaySec",
        help="Longest delay a timer message may ask for, seconds.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    timer_congest_num_each_slot: int = setting(
        2**31 - 1,
        java="timerCongestNumEachSlot",
        help="Messages of one slot above which sends are refused at random, and all from twice as many on.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    timer_stop_enqueue: bool = setting(
        False,
        java="timerStopEnqueue",
        help="Leave new timer messages in their queue.",
        mutable=True,
    )
    timer_stop_dequeue: bool = setting(
        False, java="timerStopDequeue", help="Deliver no timer messages.", mutable=True
    )

    @property
    def max_used_percent(self) -> int:
        """diskMaxUsedSpaceRatio within Apache's bounds (MessageStoreConfig.getDiskMaxUsedSpaceRatio)."""
        return min(max(self.disk_max_used_ratio, 10), 95)

    @property
    def forcibly_percent(self) -> int:
        """diskSpaceCleanForciblyRatio within Apache's bounds (CleanCommitLogService)."""
        return min(max(self.disk_clean_forcibly_ratio, 30), 85)

    @property
    def warning_percent(self) -> int:
        """diskSpaceWarningLevelRatio within Apache's bounds (CleanCommitLogService)."""
        return min(max(self.disk_warning_ratio, 35), 90)

    @property
    def reserve_bytes(self) -> int:
        """Bytes of the reserve; 0 for none."""
        return self.segment_size // 32 if self.disk_reserve is None else self.disk_reserve

    @property
    def queue_file_units(self) -> int:
        """Units of one consume queue file."""
        return -(-self.queue_file_size // 20)
