"""Every request code Apache has is served, or stands here with the reason why not yet."""

import re

import pytest
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS

from roquette.wire.codes import ABSENT, RequestCode, not_supported

CLIENT_SIDE = {
    "CHECK_TRANSACTION_STATE",
    "ROUTES_CHANGED",
    "NOTIFY_CONSUMER_IDS_CHANGED",
    "PUSH_REPLY_MESSAGE_TO_CLIENT",
    "GET_CONSUMER_STATUS_FROM_CLIENT",
    "RESET_CONSUMER_CLIENT_OFFSET",
}
UNSERVED: dict[str, str] = {
    "CONTROLLER_.*": "Apache's brokers register with Apache's controllers; ours have the group's record",
    "EXCHANGE_BROKER_HA_INFO|NOTIFY_BROKER_ROLE_CHANGED": "failover: a later issue",
    "GET_BROKER_EPOCH_CACHE": "failover: a later issue",
    "GET_ALL_SUBSCRIPTION.*SYNC": "replicas ask for it: a later issue",
    "TRIGGER_DELETE_FILES|GET_CLIENT_CONFIG|RESET_CONSUMER_OFFSET_IN_.*|ADJUST_CONSUMER_THREAD_POOL": "Apache's brokers do not serve it either",
    "WHO_CONSUME_THE_MESSAGE": "Apache's brokers do not serve it either",
    "GET_TOPIC_CONFIG_LIST|GET_TOPIC_NAME_LIST": "Apache's brokers do not serve it either",
    "QUERY_BROKER_OFFSET|(SUSPEND|RESUME)_CONSUMER": "unused by today's clients",
}

OF_MISSING_SUBSYSTEMS = {RequestCode(code).name for code in ABSENT}  # refused with their names


def served() -> set[str]:
    return {RequestCode(row.code).name for row in (*BROKER_ROWS, *NAMESRV_ROWS)}


def test_every_request_code_is_served_or_has_a_reason() -> None:
    known = served() | CLIENT_SIDE | OF_MISSING_SUBSYSTEMS
    missing = [
        code.name
        for code in RequestCode
        if code.name not in known and not any(re.fullmatch(words, code.name) for words in UNSERVED)
    ]
    assert not missing, missing
    assert not served() & OF_MISSING_SUBSYSTEMS, "what is served is not missing"


@pytest.mark.parametrize("code", range(50, 55))
def test_requests_of_access_control_1_are_answered_with_what_takes_its_accounts_over(
    code: int,
) -> None:
    said = ": Roquette has no access control 1.0: `roquette acl import conf/plain_acl.yml` makes users and rules of its accounts"
    assert not_supported(code) == f" request type {code} not supported{said}"


def test_what_the_first_issue_asks_for_is_served() -> None:
    asked = {
        10, 310, 320, 11, 361, 14, 15, 29, 30, 31, 32, 34, 35, 38, 41, 42, 36, 12, 33,
        17, 21, 200, 201, 202, 203, 204, 207, 208, 215, 300, 307, 25, 26, 28,
        100, 101, 102, 103, 104, 105, 106, 205, 327, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 901, 904,
    }  # fmt: skip
    names = served()
    assert {RequestCode(code).name for code in asked} <= names
