"""Options are checked once, and errors name the option and what to do."""

from pathlib import Path
from typing import Any

import pytest

from roquette.client.config import Credentials, TlsOptions
from roquette.errors import ConfigError
from roquette_spark.values.options import ReadOptions, read_options, refuse_ending, write_options
from roquette_spark.values.positions_json import EARLIEST, GROUP, LATEST, Position

NEEDED = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "T"}


def test_the_least_one_must_say() -> None:
    assert read_options(NEEDED) == ReadOptions(namesrv_addr="127.0.0.1:9876", topics=("T",))


def test_names_are_case_insensitive_and_have_aliases() -> None:
    options = read_options({"NAMESERVER": "a:1", "Topic": "T2, T1", "MAXOFFSETSPERTRIGGER": "5"})

    assert options == ReadOptions(
        namesrv_addr="a:1", topics=("T1", "T2"), max_offsets_per_trigger=5
    )


def test_what_sparks_catalog_adds_is_tolerated() -> None:
    catalog = {"owner": "me", "provider": "rocketmq", "option.subscribe": "T"}

    assert read_options(NEEDED | catalog) == read_options(NEEDED)


def test_options_of_the_sink_are_tolerated_since_a_table_has_one_set() -> None:
    sink = {"deliveryGuarantee": "idempotent", "rateLimit": "5", "rocketmq.sendTimeoutMs": "100"}

    assert read_options(NEEDED | sink) == read_options(NEEDED)


def test_every_option_reaches_its_field() -> None:
    given = {
        "failOnDataLoss": "FALSE",
        "maxBytesPerTrigger": "64m",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "90s",
        "minPartitions": "6",
        "maxRecordsPerPartition": "1000",
        "minRecordsPerPartition": "0",
        "offsetPollIntervalMs": "0",
        "partitionDiscoveryIntervalMs": "5",
        "group": "g",
        "commitOffsets": "false",
        "filterSql": "a > 5",
        "includeHeaders": "false",
        "includeSystemProperties": "true",
        "bodyFormat": "string",
        "columns": "topic, body",
        "pullBatchSize": "32",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "7",
        "rocketmq.connectTimeoutMs": "50",
        "rocketmq.pullTimeoutMs": "60",
        "rocketmq.pullsInFlight": "2",
        "batchRows": "10",
        "batchBytes": "1k",
    }

    assert read_options(NEEDED | given) == ReadOptions(
        namesrv_addr="127.0.0.1:9876",
        topics=("T",),
        fail_on_data_loss=False,
        max_bytes_per_trigger=64 << 20,
        min_offsets_per_trigger=10,
        max_trigger_delay_ms=90_000,
        min_partitions=6,
        max_records_per_partition=1000,
        min_records_per_partition=0,
        offset_poll_interval_ms=0,
        partition_discovery_interval_ms=5,
        group="g",
        commit_offsets=False,
        filter_sql="a > 5",
        include_properties=False,
        include_system_properties=True,
        body_format="string",
        columns=("topic", "body"),
        pull_batch_size=32,
        fetch_retries=0,
        fetch_retry_interval_ms=7,
        connect_timeout_ms=50,
        pull_timeout_ms=60,
        pulls_in_flight=2,
        batch_rows=10,
        batch_bytes=1024,
    )


def test_empty_texts_choose_nothing() -> None:
    empty = {"topic": "", "subscribePattern": "", "assign": "", "group": "", "tags": ""}

    assert read_options(NEEDED | empty) == read_options(empty | NEEDED) == read_options(NEEDED)


def test_queues_can_be_assigned_and_topics_chosen_by_pattern() -> None:
    where = {"namesrvAddr": "a:1"}

    assigned = read_options(where | {"assign": '{"T":{"b":[1,0]},"S":{"a":["3"]}}'})
    pattern = read_options(where | {"subscribePattern": "order-.*"})

    assert assigned.assigned == (("S", "a", 3), ("T", "b", 0), ("T", "b", 1))
    assert (pattern.topics, pattern.topic_pattern) == ((), "order-.*")


@pytest.mark.parametrize(
    ("given", "group", "commits"),
    [
        ({}, "spark-rocketmq-source", False),
        ({"groupIdPrefix": "etl"}, "etl", False),
        ({"group": "g", "groupIdPrefix": "etl"}, "g", True),
        ({"group": "g", "commitOffsets": "false"}, "g", False),
    ],
)
def test_progress_is_committed_where_a_group_is_named(
    given: dict[str, str], group: str, commits: bool
) -> None:
    options = read_options(NEEDED | given)

    assert (options.request_group, options.commits) == (group, commits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position(default=EARLIEST)),
        (" Latest ", Position(default=LATEST)),
        ('{"T":{"b":{"0":5,"1":-1}}}', Position(queues=(("T", "b", 0, 5), ("T", "b", 1, -1)))),
        ('{"v":1,"offsets":{"T":{"b":{"0":5}}}}', Position(queues=(("T", "b", 0, 5),), saved=True)),
    ],
)
def test_starting_offsets(text: str, expected: Position) -> None:
    assert read_options(NEEDED | {"startingOffsets": text}).starting == expected


def test_a_group_can_be_where_to_start() -> None:
    options = read_options(NEEDED | {"startingOffsets": "group", "group": "g"})

    assert options.starting == Position(default=GROUP)


def test_times_may_stand_for_a_topic_a_broker_or_a_queue() -> None:
    text = '{"T":5,"S":{"a":6,"b":{"0":7}}}'

    options = read_options(
        NEEDED
        | {"startingOffsetsByTimestamp": text, "startingOffsetsByTimestampStrategy": "latest"}
    )

    assert options.starting == Position(
        times=(("S", "a", -1, 6), ("S", "b", 0, 7), ("T", "", -1, 5)), latest_without_match=True
    )


def test_a_timestamp_wins_over_offsets_by_timestamp_and_these_over_offsets() -> None:
    all_three = {
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"T":5}',
        "startingTimestamp": "17",
    }

    assert read_options(NEEDED | all_three).starting == Position(timestamp_ms=17)
    del all_three["startingTimestamp"]
    assert read_options(NEEDED | all_three).starting == Position(times=(("T", "", -1, 5),))


def test_a_table_can_end_by_offsets_and_by_time_and_a_stream_cannot() -> None:
    by_offset = read_options(NEEDED | {"endingOffsets": '{"T":{"b":{"0":5}}}'})
    by_time = read_options(NEEDED | {"endingTimestamp": "9"})

    assert by_offset.ending == Position(default=LATEST, queues=(("T", "b", 0, 5),))
    assert by_time.ending == Position(default=LATEST, timestamp_ms=9, latest_without_match=True)
    with pytest.raises(ConfigError, match=r"a stream ends with trigger\(availableNow=True\)"):
        refuse_ending(by_time)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no option is given. Those of CREATE TABLE are not passed on by Spark"),
        ({"subscribe": "T"}, "namesrvAddr is required"),
        ({"namesrvAddr": "localhost", "subscribe": "T"}, "must be host:port;host:port"),
        ({"namesrvAddr": "a:1"}, "subscribe is required"),
        (NEEDED | {"topic": "U"}, "subscribe and topic mean the same"),
        (NEEDED | {"assign": '{"T":{"b":[0]}}'}, "subscribe and assign exclude each other"),
        (NEEDED | {"subscribePattern": "x"}, "subscribe and subscribePattern exclude each other"),
        ({"namesrvAddr": "a:1", "subscribePattern": "("}, "is not a regular expression"),
        ({"namesrvAddr": "a:1", "assign": '{"T":[0]}'}, "option assign must be JSON such as"),
        ({"namesrvAddr": "a:1", "assign": '{"T":{"b":[-1]}}'}, "option assign must be JSON"),
        ({"namesrvAddr": "a:1", "subscribe": "a b"}, "contains illegal characters"),
        (
            NEEDED | {"startingOffset": "earliest"},
            "unknown option startingOffset; did you mean startingOffsets?",
        ),
        (NEEDED | {"zzz": "1"}, "unknown option zzz; known: accessKey"),
        (NEEDED | {"rocketmq.zzz": "1"}, "unknown option rocketmq.zzz; known: accessKey"),
        (
            NEEDED | {"startingOffsets": "oldest"},
            "startingOffsets must be earliest, latest, group or JSON",
        ),
        (NEEDED | {"startingOffsets": "group"}, "startingOffsets=group needs option group"),
        (NEEDED | {"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "offset -3"),
        (NEEDED | {"startingOffsets": '{"T":{"b":{"0":1.5}}}'}, "startingOffsets must be"),
        (NEEDED | {"startingOffsets": "{}"}, "no queue is named"),
        (NEEDED | {"startingOffsets": '{"T":[1]}'}, "startingOffsets must be"),
        (NEEDED | {"endingOffsets": "earliest"}, "endingOffsets must be latest or JSON"),
        (NEEDED | {"endingOffsets": '{"T":{"b":{"0":-2}}}'}, "would read nothing"),
        (NEEDED | {"startingOffsetsByTimestamp": "17"}, "must be JSON with milliseconds"),
        (NEEDED | {"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        (
            NEEDED | {"maxOffsetsPerTrigger": "0"},
            "maxOffsetsPerTrigger must be a whole number of at least 1",
        ),
        (
            NEEDED | {"maxOffsetsPerTriggerByTopic": '{"T":0}'},
            "must be a JSON object of topics and whole numbers",
        ),
        (
            NEEDED | {"maxOffsetsPerTriggerByTopic": "1000"},
            "must be a JSON object of topics and whole numbers",
        ),
        (NEEDED | {"maxBytesPerTrigger": "lots"}, "maxBytesPerTrigger must be a size such as 128m"),
        (NEEDED | {"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 10s"),
        (NEEDED | {"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false"),
        (NEEDED | {"bodyFormat": "avro"}, "bodyFormat must be binary or string"),
        (NEEDED | {"tags": "A", "filterSql": "a = 1"}, "tags and filterSql exclude each other"),
        (NEEDED | {"commitOffsets": "true"}, "commitOffsets=true needs option group"),
        (NEEDED | {"group": "a b"}, "option group: The specified group"),
        (NEEDED | {"pushDownFilters": "true"}, "not supported yet; narrow the read with narrowBy"),
        (NEEDED | {"readFrom": "commitlog"}, 'format("rocketmq_commitlog")'),
        (NEEDED | {"namespace": "ns"}, "write names in full, as namespace%topic"),
        (NEEDED | {"rocketmq.tls.ca": "x"}, "say tls.enable, tls.ca"),
        (NEEDED | {"rocketmq.secretKey": "x"}, "say secretKey"),
        (NEEDED | {"tls.server.mode": "x"}, "say tls.enable, tls.ca"),
        (NEEDED | {"tls.ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        (NEEDED | {"tls.enable": "perhaps"}, "tls.enable must be true or false"),
        (NEEDED | {"secretKeyFile": "/nowhere/keys"}, "/nowhere/keys cannot be read"),
    ],
)
def test_wrong_options_raise_one_clear_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(given)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "securityToken"])
@pytest.mark.parametrize("read", [read_options, write_options])
def test_half_of_the_credentials_is_refused_without_being_shown(name: str, read: Any) -> None:
    with pytest.raises(ConfigError, match="is given without") as caught:
        read(NEEDED | {name.lower(): "hunter2"})  # Spark hands names over in lower case

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("read", [read_options, write_options])
def test_secrets_come_from_options_a_file_or_the_environment_and_are_shown_nowhere(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Credentials("alice", "hunter2", "hunter3")
    given = {"accesskey": "alice", "secretkey": "hunter2", "securitytoken": "hunter3"}
    found = read(NEEDED | given | {"tls.keypassword": "hunter4", "tls.enable": "false"})
    assert found.credentials == keys and found.tls_options is None
    assert "hunter" not in repr(found) + str(found)
    assert read(NEEDED).access == (None, None)

    path = tmp_path / "keys"
    path.write_text("hunter2\n")
    assert read(
        NEEDED | {"accesskey": "alice", "secretkeyfile": str(path)}
    ).credentials == Credentials("alice", "hunter2")
    for name, value in given.items():
        spelt = {"accesskey": "ACCESS_KEY", "secretkey": "SECRET_KEY"}.get(name, "SECURITY_TOKEN")
        monkeypatch.setenv(f"ROQUETTE_{spelt}", value)
    monkeypatch.setenv("ROQUETTE_TLS", "true")
    assert read(NEEDED).access == (TlsOptions(), keys)
    assert read(NEEDED | {"tls.verifyHost": "false"}).tls_options == TlsOptions(verify_host=False)
    assert read(NEEDED | {"tls.enable": "false"}).tls_options is None


def test_an_unknown_option_is_told_without_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(NEEDED | {"secretKeey": "hunter2"})

    assert "hunter2" not in str(caught.value)
