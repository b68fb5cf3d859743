"""Options and columns of a write: what is taken, and the one line that says what is wrong."""

import pytest
from pyspark.sql.types import StructType

from roquette.errors import ConfigError
from roquette.message.compression import Compression
from roquette_spark.sink.rows import write_columns
from roquette_spark.sink.writer import sender_config
from roquette_spark.values.options import write_options

GIVEN = {"namesrvAddr": "ns:9876", "topic": "T"}


def test_defaults_and_names_without_case() -> None:
    options = write_options({"NAMESRVADDR": "ns:9876", "Topic": "T", "SENDBATCHSIZE": "10"})

    assert (options.namesrv_addr, options.topic, options.batch_size) == ("ns:9876", "T", 10)
    assert (options.guarantee, options.selector, options.rate_limit) == (
        "at-least-once",
        None,
        None,
    )


def test_every_option_reaches_the_sender() -> None:
    options = write_options(
        GIVEN
        | {
            "producerGroup": "g",
            "rateLimit": "50",
            "maxInFlight": "3",
            "sendTimeoutMs": "1000",
            "sendDeadlineMs": "2000",
            "retryTimes": "0",
            "requireSendOk": "true",
            "autoCreateTopic": "true",
            "compression": "LZ4",
            "orderedQueues": "broker-a:4; broker-b:2",
            "queueSelector": "hash(key)",
        }
    )
    config = sender_config(options)

    assert (config.producer_group, config.send_timeout_ms) == ("g", 1000)
    assert (config.require_send_ok, config.auto_create_topics) == (True, True)
    limits = config.limits
    assert (limits.max_in_flight, limits.deadline_ms, limits.retry_times, limits.rate) == (
        *(3, 2000, 0),
        50,
    )
    assert options.rows_per_request == 5  # a tenth of a second's
    assert options.compression is Compression.LZ4
    assert options.ordered_queues == (("broker-a", 4), ("broker-b", 2))


def test_a_table_of_sql_may_carry_options_of_reads_and_of_sparks_catalog() -> None:
    options = write_options(
        GIVEN
        | {"startingOffsets": "earliest", "owner": "me", "option.topic": "T", "pullBatchSize": "3"}
    )
    assert options.topic == "T"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"namesrvAddr": ""}, "namesrvAddr is required"),
        ({"topicc": "x"}, "unknown option topicc; did you mean topic"),
        ({"sendBatchSize": "0"}, "sendBatchSize must be a whole number from 1 to 10000, not '0'"),
        (
            {"sendBatchSize": "10001"},
            "sendBatchSize must be a whole number from 1 to 10000, not '10001'",
        ),
        ({"rateLimit": "fast"}, "rateLimit must be a whole number of at least 1"),
        ({"deliveryGuarantee": "exactly-once"}, "must be at-least-once or idempotent"),
        ({"deliveryGuarantee": "transactional"}, "transactional is not offered"),
        ({"queueSelector": "random"}, "queueSelector must be hash"),
        ({"orderedQueues": "broker-a"}, "orderedQueues must be such as"),
        ({"topic": "a/b"}, "illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "RocketMQ's own"),
        ({"writeId": "x"}, "need deliveryGuarantee=idempotent"),
        ({"deliveryGuarantee": "idempotent", "writeId": "a b"}, "writeId must be"),
        ({"requireSendOk": "yes"}, "must be true or false"),
        ({"nameServer": "other:1"}, "mean the same"),
    ],
)
def test_wrong_options_are_told_in_one_line(changes: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        write_options(GIVEN | changes)
    assert "\n" not in str(told.value)


def test_empty_texts_ask_for_nothing() -> None:
    empty = {"queueSelector": "", "topic": "", "orderedQueues": "", "writeId": "", "idColumn": ""}
    assert write_options(GIVEN | empty) == write_options({"namesrvAddr": "ns:9876"})


def test_options_of_a_catalog_table_come_with_a_prefix() -> None:
    options = write_options({"option.namesrvAddr": "ns:9876", "option.topic": "T", "owner": "x"})
    assert (options.namesrv_addr, options.topic) == ("ns:9876", "T")


def test_half_of_the_credentials_is_refused_without_being_shown() -> None:
    with pytest.raises(
        ConfigError, match="secretKey or securityToken is given without accessKey"
    ) as told:
        write_options(GIVEN | {"secretKey": "hidden-thing"})
    assert "hidden-thing" not in str(told.value)


@pytest.mark.parametrize(
    ("ddl", "given", "says"),
    [
        ("key string", {}, "column body"),
        ("body int", {}, "column body must be binary or string, not int"),
        ("body string, tag string, x int", {}, "no message has: tag, x; a message has body, topic"),
        ("body string, key binary", {}, "column key must be string, not binary"),
        ("body string, broker_name string", {}, "broker_name needs column queue_id"),
        ("body string", {"queueSelector": "column"}, "needs a column queue_id"),
        ("body string", {"queueSelector": "hash"}, "needs a column key, keys or message_group"),
        ("body string", {"deliveryGuarantee": "idempotent", "idColumn": "n"}, "no column n"),
        (
            "body string, n int",
            {"deliveryGuarantee": "idempotent", "idColumn": "n"},
            "idColumn n must be string",
        ),
    ],
)
def test_wrong_columns_are_told_in_one_line(ddl: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        write_columns(struct_of(ddl), write_options(GIVEN | given))


def test_without_a_topic_anywhere() -> None:
    with pytest.raises(ConfigError, match="give option topic, or a column topic"):
        write_columns(struct_of("body string"), write_options({"namesrvAddr": "x:1"}))


@pytest.mark.parametrize(
    ("ddl", "selector"),
    [
        ("body string", "roundrobin"),
        ("body string, key string", "hash"),
        ("body string, key string, queue_id int", "column"),
    ],
)
def test_the_columns_choose_the_selector(ddl: str, selector: str) -> None:
    assert write_columns(struct_of(ddl), write_options(GIVEN)).selector == selector


def test_unknown_columns_may_be_ignored_and_the_id_column_is_not_unknown() -> None:
    ignoring = write_options(GIVEN | {"ignoreUnknownColumns": "true"})
    columns = write_columns(struct_of("Body string, other int"), ignoring)
    assert columns.positions == {"body": 0}

    options = write_options(GIVEN | {"deliveryGuarantee": "idempotent", "idColumn": "n"})
    columns = write_columns(struct_of("n string, body binary"), options)
    assert (columns.positions, columns.id_position) == ({"body": 1}, 0)


def struct_of(ddl: str) -> StructType:
    """A schema of DDL text without Spark: flat columns of simple types only."""
    from pyspark.sql import types as t

    simple = {
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
    }
    fields = [part.split() for part in ddl.split(", ")]
    return t.StructType([t.StructField(name, simple[kind]) for name, kind in fields])
