"""The store's settings, under Apache's keys and with Apache's defaults (MessageStoreConfig)."""

import enum
from dataclasses import dataclass
from typing import Final

from roquette.base.options import INT32, INT64, PERCENT, OptionKind, live, matching, option
from roquette.errors import MessageIllegal
from roquette.message.properties import DELAY_LEVELS
from roquette.message.record_layout import (
    BLANK_SIZE,
    MAX_PROPERTIES,
    MAX_TOPIC_NAME,
    names_directory,
)

MESSAGES: Final = OptionKind(least=1, most=32_768)
BYTES: Final = OptionKind(least=1, most=1 << 30)
HOURS: Final = matching(
    r"\s*|\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*;?", "hours such as 04 or 02;14"
)


class FlushDiskType(enum.Enum):
    """Moment at which a send is acknowledged."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a store: where data lives, how big its files are, when it is synced and when it is deleted."""

    root_dir: str = option(
        "~/store", "Directory of everything the store keeps.", name="storePathRootDir"
    )
    commit_log_dir: str | None = option(
        None,
        "Directory of the commit log; default is commitlog under storePathRootDir.",
        name="storePathCommitLog",
    )
    segment_size: int = option(
        1 << 30, "Bytes of one commit log file.", name="mappedFileSizeCommitLog"
    )
    queue_file_size: int = option(
        6_000_000,
        "Bytes of one consume queue file; rounded up to whole units of 20 bytes.",
        name="mappedFileSizeConsumeQueue",
    )
    max_topic_length: int = live(127, "Longest name of a new topic.", least=1, most=127)
    max_message_size: int = live(4 << 20, "Largest message body in bytes.", kind=BYTES)
    max_batch_messages: int = live(
        32_768, "Messages in one batch; Apache's broker has no bound.", kind=MESSAGES
    )
    index_enable: bool = option(
        True, "Index messages by KEYS and by unique id.", name="messageIndexEnable"
    )
    max_hash_slots: int = option(5_000_000, "Hash slots of one index file.", name="maxHashSlotNum")
    max_index_entries: int = option(20_000_000, "Entries of one index file.", name="maxIndexNum")
    max_query_count: int = live(
        64, "Most messages one query by key returns.", name="maxMsgsNumBatch", kind=MESSAGES
    )
    default_query_max_count: int = option(
        32, "Most messages a query by unique id returns.", name="defaultQueryMaxNum"
    )
    flush_disk_type: FlushDiskType = option(
        FlushDiskType.ASYNC_FLUSH,
        "ASYNC_FLUSH answers a send at once, SYNC_FLUSH after the data is on the disk.",
    )
    flush_interval_ms: int = option(
        500, "Longest time written data waits for a sync.", name="flushIntervalCommitLog"
    )
    sync_flush_timeout_ms: int = option(
        5000, "A SYNC_FLUSH send waits this long for its sync.", name="syncFlushTimeout"
    )
    queue_flush_interval_ms: int = option(
        1000, "How often consume queues are synced.", name="flushIntervalConsumeQueue"
    )
    queue_flush_least_pages: int = option(
        2,
        "Pages of 4 KiB a consume queue must have unsynced to be worth a sync.",
        name="flushConsumeQueueLeastPages",
    )
    queue_flush_thorough_interval_ms: int = option(
        60_000,
        "How often all consume queues are synced and the checkpoint moves.",
        name="flushConsumeQueueThoroughInterval",
    )
    file_reserved_hours: int = live(
        72, "Hours a commit log file is kept.", name="fileReservedTime", least=1, most=1 << 20
    )
    file_reserved_bytes: int = live(
        0,
        "Bytes of commit log that are kept, at any hour and whatever its age; 0 sets no limit by size.",
        kind=INT64,
    )
    delete_when: str = live(
        "04", "Hours of the day, split by ;, at which expired files are deleted.", kind=HOURS
    )
    delete_batch: int = live(
        10,
        "Most commit log files deleted in one pass.",
        name="deleteFileBatchMax",
        least=1,
        most=1 << 20,
    )
    clean_interval_ms: int = option(
        10_000, "How often deletion is considered.", name="cleanResourceInterval"
    )
    clean_forcibly_enable: bool = live(
        True,
        "Delete unexpired files too when the disk is fuller than diskSpaceCleanForciblyRatio.",
        name="cleanFileForciblyEnable",
    )
    disk_max_used_ratio: int = live(
        75,
        "Disk use in percent above which expired files are deleted at any hour; 10 to 95.",
        name="diskMaxUsedSpaceRatio",
        kind=PERCENT,
    )
    disk_clean_forcibly_ratio: int = live(
        85,
        "Disk use in percent above which the oldest files go, expired or not; 30 to 85.",
        name="diskSpaceCleanForciblyRatio",
        kind=PERCENT,
    )
    disk_clean_forcibly_free: int = live(
        32 << 30,
        "The oldest files go only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        name="diskCleanForciblyFreeBytes",
        kind=INT64,
    )
    disk_warning_ratio: int = live(
        90,
        "Disk use in percent above which messages are refused; 35 to 90.",
        name="diskSpaceWarningLevelRatio",
        kind=PERCENT,
    )
    disk_full_free: int = live(
        16 << 30,
        "Messages are refused only when fewer bytes than this are free, too; 0 lets the ratio decide alone.",
        name="diskFullFreeBytes",
        kind=INT64,
    )
    disk_reserve: int | None = option(
        None,
        "Bytes kept back for offsets and deletions on a full disk; default is a 32nd of a commit log file.",
        name="diskReserveBytes",
    )
    check_crc_on_recover: bool = option(
        True, "Compare every body with its CRC in recovery.", name="checkCRCOnRecover"
    )
    max_count_in_memory: int = live(
        32,
        "Most messages of one recent read.",
        name="maxTransferCountOnMessageInMemory",
        kind=MESSAGES,
    )
    max_bytes_in_memory: int = live(
        256 << 10,
        "Most bytes of one recent read.",
        name="maxTransferBytesOnMessageInMemory",
        kind=BYTES,
    )
    max_count_on_disk: int = live(
        8, "Most messages of one old read.", name="maxTransferCountOnMessageInDisk", kind=MESSAGES
    )
    max_bytes_on_disk: int = live(
        64 << 10, "Most bytes of one old read.", name="maxTransferBytesOnMessageInDisk", kind=BYTES
    )
    memory_ratio: int = live(
        40,
        "Percent of physical memory that recent log is assumed to be cached in.",
        name="accessMessageInMemoryMaxRatio",
        most=100,
    )
    cold_data_flow_control_enable: bool = live(
        False, "Limit what groups read of the log's cold part: cgColdReadThreshold."
    )
    hot_ratio: int = live(
        26,
        "Percent of physical memory at the log's end that is not cold for coldDataFlowControlEnable.",
        name="accessMessageInMemoryHotRatio",
        most=100,
    )
    data_read_ahead_enable: bool = live(
        True, "The system reads the log ahead; off: what is asked for, for random reads."
    )
    delay_levels: str = option(
        DELAY_LEVELS,
        "Delays of levels 1, 2, 3 and so on; units are s, m, h and d.",
        name="messageDelayLevel",
    )
    timer_wheel_enable: bool = option(True, "Serve messages with an arbitrary time of delivery.")
    timer_precision_ms: int = option(
        1000, "Width of a timer slot: 100, 200, 500 or 1000 ms; other values are rounded down."
    )
    timer_roll_window_slots: int = option(
        2 * 86_400,
        "Messages further ahead than so many slots are put again on the way.",
        name="timerRollWindowSlot",
    )
    timer_flush_interval_ms: int = option(1000, "How often the timer's progress is synced.")
    timer_log_file_size: int = option(
        100 << 20, "Bytes of one timer log file.", name="mappedFileSizeTimerLog"
    )
    timer_max_delay_sec: int = live(
        3 * 86_400, "Longest delay a timer message may ask for, seconds.", kind=INT32
    )
    timer_congest_num_each_slot: int = live(
        2**31 - 1,
        "Messages of one slot above which sends are refused at random, and all from twice as many on.",
        kind=INT32,
    )
    timer_stop_enqueue: bool = live(False, "Leave new timer messages in their queue.")
    timer_stop_dequeue: bool = live(False, "Deliver no timer messages.")

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


# Limits of one record, and the words for breaking them.


def raise_illegal(
    config: StoreConfig, body_size: int, properties_size: int, size: int, *, own: bool = False
) -> None:
    """Raise MessageIllegal with the numbers, if any limit is broken; maxMessageSize is none for `own` messages."""
    if body_size > config.max_message_size and not own:
        raise MessageIllegal(
            f"the message body size {body_size} is above maxMessageSize {config.max_message_size}"
        )
    if properties_size > MAX_PROPERTIES:
        raise MessageIllegal(
            f"the properties take {properties_size} bytes, at most {MAX_PROPERTIES} are allowed"
        )
    if size + BLANK_SIZE > config.segment_size:
        raise MessageIllegal(
            f"a record of {size} bytes does not fit into a commit log file of "
            f"{config.segment_size} bytes (mappedFileSizeCommitLog)"
        )


def check_topic(topic: str) -> None:
    """Raise MessageIllegal for a name that cannot be a topic's directory."""
    name = topic.encode()
    if len(name) > MAX_TOPIC_NAME:
        raise MessageIllegal(f"the topic takes {len(name)} bytes, at most {MAX_TOPIC_NAME}")
    if not names_directory(name):
        raise MessageIllegal(f"topic {topic!r} cannot name a directory")
