"""Requests of subsystems that Roquette does not have: they are refused, and the refusal says why."""

from collections.abc import Mapping
from typing import Final

from roquette.base.instead import ACL_IMPORT
from roquette.wire.codes import RequestCode as R

_OF: Final = {
    "broker containers": (R.ADD_BROKER, R.REMOVE_BROKER),
    "static topics": (R.UPDATE_AND_CREATE_STATIC_TOPIC,),
    "RocksDB": (
        R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        R.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        R.SWITCH_TIMER_ENGINE,
    ),
    "lite topics": (
        R.POP_LITE_MESSAGE,
        R.LITE_SUBSCRIPTION_CTL,
        R.ACK_LITE_MESSAGE,
        R.NOTIFY_UNSUBSCRIBE_LITE,
        R.GET_BROKER_LITE_INFO,
        R.GET_PARENT_TOPIC_INFO,
        R.GET_LITE_TOPIC_INFO,
        R.GET_LITE_CLIENT_INFO,
        R.GET_LITE_GROUP_INFO,
        R.TRIGGER_LITE_DISPATCH,
    ),
    "filter servers": (R.REGISTER_FILTER_SERVER, R.REGISTER_MESSAGE_FILTER_CLASS),
    f"access control 1.0: `{ACL_IMPORT}` makes users and rules of its accounts": (
        R.UPDATE_AND_CREATE_ACL_CONFIG,
        R.DELETE_ACL_CONFIG,
        R.GET_BROKER_CLUSTER_ACL_INFO,
        R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        R.GET_BROKER_CLUSTER_ACL_CONFIG,
    ),
}

ABSENT: Final[Mapping[int, str]] = {
    int(code): subsystem for subsystem, codes in _OF.items() for code in codes
}
"""Request code -> the subsystem that is missing."""


def not_supported(code: int) -> str:
    """The remark of REQUEST_CODE_NOT_SUPPORTED: Apache's words, and which subsystem is missing."""
    subsystem = ABSENT.get(code)
    text = f" request type {code} not supported"
    return text if subsystem is None else f"{text}: Roquette has no {subsystem}"
