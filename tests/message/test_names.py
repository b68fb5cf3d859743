"""Names of topics and groups, and permissions."""

import pytest

from roquette.message import names

ILLEGAL = ", contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize(
    "name", ["TopicTest", "%RETRY%group", "a|b", "A-b_9", "t" * 127, "%DLQ%" + "g" * 250]
)
def test_good_topics(name: str) -> None:
    assert names.topic_error(name) is None


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_blank_names(name: str) -> None:
    assert names.topic_error(name) == "The specified topic is blank."
    assert names.group_error(name) == "The specified group is blank."
    assert names.client_topic_error(name) == "The specified topic is blank"
    assert names.client_group_error(name) == "the specified group is blank"


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "a/b",
        "../x",
        "a\\b",
        "a b",
        "a\0",
        "%RETRY%g/../x",
        "a+b",
        "a.b",
        "ü",
        "a:b",
        "名",
    ],
)
def test_path_tricks_and_other_characters_are_refused(name: str) -> None:
    assert names.topic_error(name) == f"The specified topic: {name}{ILLEGAL}"
    assert names.group_error(name) == f"The specified group: {name}{ILLEGAL}"
    assert (
        names.client_topic_error(name)
        == f"The specified topic[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )
    assert (
        names.client_group_error(name)
        == f"the specified group[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )


def test_long_names_are_refused() -> None:
    topic, group, retry = "t" * 128, "g" * 121, "%RETRY%" + "g" * 249

    assert (
        names.topic_error(topic)
        == f"The specified topic: {topic}, is longer than topic max length: 127"
    )
    assert (
        names.topic_error(retry)
        == f"The specified topic is DLQ or Retry topic: {retry}, and it's longer than topic max length: 255"
    )
    assert (
        names.group_error(group)
        == f"The specified group: {group}, is longer than group max length: 120"
    )
    assert names.group_error("g" * 120) is None
    assert (
        names.client_topic_error(topic)
        == "The specified topic is longer than topic max length 127."
    )
    assert (
        names.client_group_error(group)
        == f"the specified group[{group}] is longer than group max length: 120."
    )


def test_system_names() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("TopicTest")
    assert names.NOT_ALLOWED_SEND < names.SYSTEM_TOPICS
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert [
        names.is_users_group(name) for name in ("billing", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS")
    ] == [True, False, False]
    assert (names.retry_topic("g"), names.dlq_topic("g"), names.reply_topic("c")) == (
        "%RETRY%g",
        "%DLQ%g",
        "c_REPLY_TOPIC",
    )


def test_permissions_are_shown_and_checked() -> None:
    assert [names.perm_text(perm) for perm in (0, 1, 2, 4, 6, 7)] == [
        "---",
        "--X",
        "-W-",
        "R--",
        "RW-",
        "RWX",
    ]
    assert names.is_valid_perm(7)
    assert not names.is_valid_perm(8)
    assert not names.is_valid_perm(-1)


def test_pop_retry_topics_in_both_forms() -> None:
    assert names.pop_retry_topic("orders", "billing") == "%RETRY%billing_orders"
    assert names.pop_retry_topic("orders", "billing", v2=True) == "%RETRY%billing+orders"
    assert names.topic_error("%RETRY%billing+orders") is not None, "no client makes one"
    assert names.split_pop_retry_topic("%RETRY%billing+orders") == ("billing", "orders")
    for other in ("%RETRY%billing_orders", "%RETRY%billing", "a+b", "%RETRY%a+b+c", "%RETRY%a+"):
        assert names.split_pop_retry_topic(other) is None
    assert names.group_of_retry_topic("%RETRY%billing+orders") == "billing"
    assert names.group_of_retry_topic("%RETRY%billing") == "billing"
    assert names.origin_of_retry_topic("%RETRY%billing+orders", "billing") == "orders"
    assert names.origin_of_retry_topic("%RETRY%billing_orders", "billing") == "orders"
    assert names.origin_of_retry_topic("%RETRY%billing", "billing") == "%RETRY%billing"
    assert names.origin_of_retry_topic("orders", "billing") == "orders"


@pytest.mark.parametrize(
    ("group", "pipeline"),
    [
        ("archive-lake-1a2b3c4d", "archive"),
        ("current-state-users-00112233", "current-state"),
        ("archive--1a2b3c4d", "archive"),
        ("archive-lake", ""),
        ("archive-lake-1a2b3c4", ""),
        ("my-archive-lake-1a2b3c4d", ""),
        ("archived-1a2b3c4d", ""),
        ("billing", ""),
    ],
)
def test_a_pipelines_group_is_known_by_its_name(group: str, pipeline: str) -> None:
    assert names.pipeline_of_group(group) == pipeline
