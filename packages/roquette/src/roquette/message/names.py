"""Topic and group names: which are allowed, which belong to the system; permissions of a topic.

Apache: TopicValidator, Validators, MixAll, PermName.
"""

import re
from functools import lru_cache
from typing import Final

MAX_TOPIC: Final = 127
MAX_RETRY_TOPIC: Final = 255  # retry and dead-letter topics, whose names hold a group's
MAX_GROUP: Final = 120

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
HANDOVER_PREFIX: Final = "%HANDOVER%"  # under it our clients lock what they consume side by side
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REPLY_TOPIC_SUFFIX: Final = "REPLY_TOPIC"
REVIVE_LOG_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

TBW102: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

SYSTEM_TOPICS: Final = frozenset(
    {
        TBW102,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        CHECKPOINT_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)

NOT_ALLOWED_SEND: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
"""Topics clients may not send to (TopicValidator.isNotAllowedSendTopic)."""

INNER_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
"""Where messages of all topics wait: who reads one of these reads everybody's."""

DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP: Final = "SCHEDULE_CONSUMER"
FILTERSRV_CONSUMER_GROUP: Final = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP: Final = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP: Final = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP: Final = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
ONSAPI_PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
ONSAPI_OWNER_GROUP: Final = "CID_ONSAPI_OWNER"
ONSAPI_PULL_GROUP: Final = "CID_ONSAPI_PULL"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"

PREDEFINED_GROUPS: Final = frozenset(
    {
        DEFAULT_CONSUMER_GROUP,
        DEFAULT_PRODUCER_GROUP,
        TOOLS_CONSUMER_GROUP,
        SCHEDULE_CONSUMER_GROUP,
        FILTERSRV_CONSUMER_GROUP,
        MONITOR_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        SELF_TEST_PRODUCER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        ONSAPI_PERMISSION_GROUP,
        ONSAPI_OWNER_GROUP,
        ONSAPI_PULL_GROUP,
        TRANS_GROUP,
    }
)

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

_ALLOWED: Final = frozenset("%|-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ILLEGAL: Final = ", contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def is_inner_topic(name: str) -> bool:
    """Return True if it is one of the broker's own, with everybody's messages or with what it believes of them."""
    return name in INNER_TOPICS or name.startswith((REVIVE_LOG_PREFIX, SYNC_BROKER_MEMBER_PREFIX))


def retry_topic(group: str) -> str:
    """The topic a group's failed messages come back on."""
    return RETRY_PREFIX + group


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """The topic on which POP gives a group's unacknowledged messages of `topic` again.

    Form 1, the default of 5.x, cannot be taken apart again (`%RETRY%a_b_c`); form 2 joins by `+`, which no
    name may hold, so that clients cannot send to it (KeyBuilder.buildPopRetryTopic).
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def split_pop_retry_topic(name: str) -> tuple[str, str] | None:
    """Group and topic of a POP retry topic of form 2; None for every other name (KeyBuilder.parseGroup)."""
    if not name.startswith(RETRY_PREFIX):
        return None
    parts = name[len(RETRY_PREFIX) :].split("+")
    return (parts[0], parts[1]) if len(parts) == 2 and parts[1] else None


def group_of_retry_topic(name: str) -> str:
    """The group a retry topic belongs to (KeyBuilder.parseGroup); form 1 of POP keeps its topic in the name."""
    parts = split_pop_retry_topic(name)
    return name.removeprefix(RETRY_PREFIX) if parts is None else parts[0]


def origin_of_retry_topic(name: str, group: str) -> str:
    """The topic behind a POP retry topic of a known group; any other name as it is (parseNormalTopic)."""
    for separator in "+_":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def judged_topic(topic: str, group: str, origin_group: str) -> str:
    """The topic whose right a group needs for a message at a place of the log: of its own retries, in either form, the group's own.

    Args:
        origin_group: the group that the message names as its own (`ORIGIN_GROUP`): form 1 of POP does not say whose a topic is.
    """
    own = origin_group == group and origin_of_retry_topic(topic, group) != topic
    return retry_topic(group) if own else topic


def dlq_topic(group: str) -> str:
    """The topic a group's messages end in when all retries failed."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic of request-reply answers in a cluster."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def is_system_topic(name: str) -> bool:
    """Return True if the topic is RocketMQ's own (TopicValidator.isSystemTopic)."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Return True if the group is the system's (MixAll.isSysConsumerGroup)."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def is_users_group(name: str) -> bool:
    """Return True if a group is neither the system's nor one that Apache's brokers have from their start."""
    return not (name in PREDEFINED_GROUPS or is_system_group(name))


_PIPELINES_GROUP: Final = re.compile(r"(archive|current-state)-.*-[0-9a-f]{8}")


def pipeline_of_group(name: str) -> str:
    """Which pipeline of roquette_spark has the group, such as "archive", by the name it makes where it is given none; "" for others.

    Such a group has no members: runs commit to it what their tables have, and go on from checkpoints.
    """
    found = _PIPELINES_GROUP.fullmatch(name)
    return "" if found is None else found[1]


def topic_error(name: str, longest: int = MAX_TOPIC) -> str | None:
    """Return what is wrong with a topic's name, in the broker's words; None when it is good.

    The allowed characters leave no room for path tricks: neither `/` nor `.` is among them.
    Apache: TopicValidator.validateTopic.
    """
    if not name or name.isspace():
        return "The specified topic is blank."
    if not _ALLOWED.issuperset(name):
        return f"The specified topic: {name}{_ILLEGAL}"
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(name) > MAX_RETRY_TOPIC:
            return (
                f"The specified topic is DLQ or Retry topic: {name}"
                f", and it's longer than topic max length: {MAX_RETRY_TOPIC}"
            )
    elif len(name) > longest:
        return f"The specified topic: {name}, is longer than topic max length: {longest}"
    return None


def group_error(name: str) -> str | None:
    """Return what is wrong with a group's name, in the broker's words; None when it is good.

    Apache: TopicValidator.validateGroup.
    """
    if not name or name.isspace():
        return "The specified group is blank."
    if not _ALLOWED.issuperset(name):
        return f"The specified group: {name}{_ILLEGAL}"
    if len(name) > MAX_GROUP:
        return f"The specified group: {name}, is longer than group max length: {MAX_GROUP}"
    return None


@lru_cache(1024)
def client_topic_error(name: str) -> str | None:
    """Return what is wrong with a topic's name, in the client's words (Validators.checkTopic)."""
    if not name or name.isspace():
        return "The specified topic is blank"
    if len(name) > MAX_TOPIC:
        return f"The specified topic is longer than topic max length {MAX_TOPIC}."
    if not _ALLOWED.issuperset(name):
        return (
            f"The specified topic[{name}] contains illegal characters"
            ", allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None


def client_group_error(name: str) -> str | None:
    """Return what is wrong with a group's name, in the client's words (Validators.checkGroup)."""
    if not name or name.isspace():
        return "the specified group is blank"
    if len(name) > MAX_GROUP:
        return f"the specified group[{name}] is longer than group max length: {MAX_GROUP}."
    if not _ALLOWED.issuperset(name):
        return (
            f"the specified group[{name}] contains illegal characters"
            ", allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None


def perm_text(perm: int) -> str:
    """`RW-` for 6: read, write, inherit (PermName.perm2String)."""
    read = "R" if perm & PERM_READ else "-"
    write = "W" if perm & PERM_WRITE else "-"
    inherit = "X" if perm & PERM_INHERIT else "-"
    return read + write + inherit


def is_valid_perm(perm: int) -> bool:
    """Return True if a topic may have this permission (PermName.isValid)."""
    return 0 <= perm < PERM_PRIORITY
