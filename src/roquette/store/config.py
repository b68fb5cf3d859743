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
        "~/store", "Directory of everything the store keeps.", java="storePathRootDir"
    )
    commit_log_dir: str | None = setting(
        None,
        "Directory of the commit log; default is commitlog under storePathRootDir.",
        java="storePathCommitLog",
    )
    segment_size: int = setting(
        1 << 30, "Bytes of one commit log file.", java="mappedFileSizeCommitLog"
    )
    queue_file_size: int = setting(
        6_000_000,
        "Bytes of one consume queue file; rounded up to whole units of 20 bytes.",
        java="mappedFileSizeConsumeQueue",
    )
    max_topic_length: int = setting(
        127, "Longest name of a new topic.", mutable=True, least=1, most=127
    )
    max_message_size: int = setting(
        4 << 20, "Largest message body in bytes.", mutable=True, least=1, most=1 << 30
    )
    max_batch_messages: int = setting(
        32_768,
        "Messages in one batch; Apache's broker has no bound.",
        mutable=True,
        least=1,
        most=32_768,
    )
    index_enable: bool = setting(
        True, "Index messages by KEYS and by unique id.", java="messageIndexEnable"
    )
    max_hash_slots: int = setting(5_000_000, "Hash slots of one index file.", java="maxHashSlotNum")
    max_index_entries: int = setting(20_000_000, "Entries of one index file.", java="maxIndexNum")
    max_query_count: int = setting(
        64,
        "Most messages one query by key returns.",
        java="maxMsgsNumBatch",
        mutable=True,
        least=1,
        most=32_768,
    )
    default_query_max_count: int = setting(
        32, "Most messages a query by unique id returns.", java="defaultQueryMaxNum"
    )
    flush_disk_type: FlushDiskType = setting(  # noqa: RUF009 - a field, whatever ruff thinks
        FlushDiskType.ASYNC_FLUSH,
        "ASYNC_FLUSH answers a send at once, SYNC_FLUSH after the data is on the disk.",
    )
    flush_interval_ms: int = setting(
        500, "Longest time written data waits for a sync.", java="flushIntervalCommitLog"
    )
    sync_flush_timeout_ms: int = setting(
        5000, "A SYNC_FLUSH send waits this long for its sync.", java="syncFlushTimeout"
    )
    queue_flush_interval_ms: int = setting(
        1000, "How often consume queues are synced.", java="flushIntervalConsumeQueue"
    )
    queue_flush_least_pages: int = setting(
        2,
        "Pages of 4 KiB a consume queue must have unsynced to be worth a sync.",
        java="flushConsumeQueueLeastPages",
    )
    queue_flush_thorough_interval_ms: int = setting(
        60_000,
        "How often all consume queues are synced and the checkpoint moves.",
        java="flushConsumeQueueThoroughInterval",
    )
    file_reserved_hours: int = setting(
        72,
        "Hours a commit log file is kept.",
        java="fileReservedTime",
        mutable=True,
        least=1,
        most=1 << 20,
    )
    file_reserved_bytes: int = setting(
        0,
        "Bytes of commit log that are kept, at any hour and whatever its age; 0 sets no limit by size.",
        mutable=True,
        most=2**63 - 1,
    )
    delete_when: str = setting(
        "04",
        "Hours of the day, split by ;, at which expired files are deleted.",
        mutable=True,
        form=r"\s*|\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?",
    )
    delete_batch: int = setting(
        10,
        "Most commit log files deleted in one pass.",
        java="deleteFileBatchMax",
        mutable=True,
        least=1,
        most=1 << 20,
    )
    clean_interval_ms: int = setting(
        10_000, "How often deletion is considered.", java="cleanResourceInterval"
    )
    clean_forcibly_enable: bool = setting(
        True,
        "Delete unexpired files too when the disk is fuller than diskSpaceCleanForciblyRatio.",
        java="cleanFileForciblyEnable",
        mutable=True,
    )
    disk_max_used_ratio: int = setting(
        75,
        "Disk use in percent above which expired files are deleted at any hour; 10 to 95.",
        java="diskMaxUsedSpaceRatio",
        mutable=True,
        least=1,
        most=100,
    )
    disk_clean_forcibly_ratio: int = setting(
        85,
        "Disk use in percent above which the oldest files go, expired or not; 30 to 85.",
        java="diskSpaceCleanForciblyRatio",
        mutable=True,
        least=1,
        most=100,
    )
    disk_clean_forcibly_free: int = setting(
        32 << 30,
        "The oldest files go only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        java="diskCleanForciblyFreeBytes",
        mutable=True,
        most=2**63 - 1,
    )
    disk_warning_ratio: int = setting(
        90,
        "Disk use in percent above which messages are refused; 35 to 90.",
        java="diskSpaceWarningLevelRatio",
        mutable=True,
        least=1,
        most=100,
    )
    disk_full_free: int = setting(
        16 << 30,
        "Messages are refused only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        java="diskFullFreeBytes",
        mutable=True,
        most=2**63 - 1,
    )
    disk_reserve: int | None = setting(
        None,
        "Bytes kept back for offsets and deletions on a full disk; default is a 32nd of a commit log file.",
        java="diskReserveBytes",
    )
    check_crc_on_recover: bool = setting(
        True, "Compare every body with its CRC in recovery.", java="checkCRCOnRecover"
    )
    max_count_in_memory: int = setting(
        32,
        "Most messages of one recent read.",
        java="maxTransferCountOnMessageInMemory",
        mutable=True,
        least=1,
        most=32_768,
    )
    max_bytes_in_memory: int = setting(
        256 << 10,
        "Most bytes of one recent read.",
        java="maxTransferBytesOnMessageInMemory",
        mutable=True,
        least=1,
        most=1 << 30,
    )
    max_count_on_disk: int = setting(
        8,
        "Most messages of one old read.",
        java="maxTransferCountOnMessageInDisk",
        mutable=True,
        least=1,
        most=32_768,
    )
    max_bytes_on_disk: int = setting(
        64 << 10,
        "Most bytes of one old read.",
        java="maxTransferBytesOnMessageInDisk",
        mutable=True,
        least=1,
        most=1 << 30,
    )
    memory_ratio: int = setting(
        40,
        "Percent of physical memory that recent log is assumed to be cached in.",
        java="accessMessageInMemoryMaxRatio",
        mutable=True,
        most=100,
    )
    delay_levels: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of levels 1, 2, 3 and so on; units are s, m, h and d.",
        java="messageDelayLevel",
    )
    timer_wheel_enable: bool = setting(True, "Serve messages with an arbitrary time of delivery.")
    timer_precision_ms: int = setting(
        1000, "Width of a timer slot: 100, 200, 500 or 1000 ms; other values are rounded down."
    )
    timer_roll_window_slots: int = setting(
        2 * 86_400,
        "Messages further ahead than so many slots are put again on the way.",
        java="timerRollWindowSlot",
    )
    timer_flush_interval_ms: int = setting(1000, "How often the timer's progress is synced.")
    timer_log_file_size: int = setting(
        100 << 20, "Bytes of one timer log file.", java="mappedFileSizeTimerLog"
    )
    timer_max_delay_sec: int = setting(
        3 * 86_400,
        "Longest delay a timer message may ask for, seconds.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    timer_congest_num_each_slot: int = setting(
        2**31 - 1,
        "Messages of one slot above which sends are refused at random, and all from twice as many on.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    timer_stop_enqueue: bool = setting(
        False, "Leave new timer messages in their queue.", mutable=True
    )
    timer_stop_dequeue: bool = setting(False, "Deliver no timer messages.", mutable=True)

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
