"""Bodies: JSON, fastjson's dialect of it, and neither."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import RemoteProtocolError
from roquette.message import fastjson
from roquette.message.fastjson import MAX_TEXT, read_json
from roquette.message.message import MessageQueue
from roquette.wire import bodies, json_body
from roquette.wire.bodies import (
    BrokerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    DataVersion,
    HeartbeatData,
    OffsetWrapper,
    ResetOffsetBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    TopicStatsTable,
)
from roquette.wire.json_body import (
    _text,
    decode_body,
    decode_request_body,
    encode_body,
    fastjson_pretty,
    text_slices,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "json_body"
WRITTEN = sorted(path.stem for path in GOLDEN.glob("*.pretty"))
QUEUE = MessageQueue("TopicTest", "broker-a", 0)


@pytest.mark.parametrize("name", WRITTEN)
def test_bodies_are_written_byte_for_byte_as_fastjson_does(name: str) -> None:
    body = (GOLDEN / f"{name}.body").read_bytes()
    found = decode_body(getattr(bodies, name), body)

    assert encode_body(found, java_keys=True) == body
    assert fastjson_pretty(found) == (GOLDEN / f"{name}.pretty").read_bytes()
    for some in (1, 100, 1 << 20):
        assert sliced(found, some, java_keys=True, indent="")[0] == fastjson_pretty(found)
        assert sliced(found, some, java_keys=True, indent=None)[0] == body


def sliced(value: Any, some: int, *, java_keys: bool, indent: str | None) -> tuple[bytes, int]:
    """The text of a value in slices of `some` characters, and how many there were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_body, "SLICE", some)
        slices = list(text_slices(value, java_keys=java_keys, indent=indent))
    return b"".join(slices), len(slices)


def test_a_large_table_is_written_in_slices_of_a_few_rows() -> None:
    topics = TopicConfigSerializeWrapper({f"t{n}": TopicConfig(f"t{n}", n) for n in range(1_000)})
    found, number = sliced(topics, 1_000, java_keys=True, indent="")
    assert found == fastjson_pretty(topics)
    assert 150 <= number <= 250, "slices of four to seven rows"

    found, number = sliced(topics, 1_000, java_keys=False, indent=None)
    assert json.loads(found) == json.loads(encode_body(topics))
    assert 100 <= number <= 250


def test_number_keys_are_quoted_unless_java_keys_are_asked_for() -> None:
    data = BrokerData(cluster="c", broker_name="b", broker_addrs={0: "10.0.0.1:10911"})

    assert json.loads(encode_body(data))["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in encode_body(data, java_keys=True)
    assert decode_body(BrokerData, encode_body(data)) == data


def test_queue_keys_are_always_objects() -> None:
    expected = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:3}}'

    assert encode_body(ResetOffsetBody({QUEUE: 3})) == expected
    assert decode_body(ResetOffsetBody, expected) == ResetOffsetBody({QUEUE: 3})


def test_nulls_are_not_written() -> None:
    assert b"null" not in encode_body(TopicRouteData())
    assert b"null" not in encode_body(BrokerData(), java_keys=True)
    assert encode_body({"a": None, "b": "null"}) == b'{"b":"null"}'


@pytest.mark.parametrize(
    "text",
    [
        b'{"topicName":"T","perm":4,"attributes":{"a":"b"}}',
        b'{"topicName":"T","perm":"4","attributes":{"a":"b"},"unknown":[1,{"x":null}]}',
        b'{"topicName":"T","perm":4,"order":null,"attributes":{"a":"b"}}',
        b"{'topicName':'T','perm':4,'attributes':{'a':'b'}}",
        b'{topicName:"T",perm:4,attributes:{a:"b"}}',
        b' { "topicName" : "T" ,\n"perm" : 4 , "attributes" : { "a" : "b" , } , } ',
        b'{"topicName":"\\u0054","perm":4,"order":false,"attributes":{"a":"b",},}',
    ],
)
def test_what_fastjson_takes_is_taken(text: bytes) -> None:
    assert decode_body(TopicConfig, text) == TopicConfig("T", perm=4, attributes={"a": "b"})


def test_texts_keep_what_looks_like_a_key() -> None:
    text = b'{"offsetTable":{"a{0:1,2:3@g":{0:1,"7" : "9",-1:2}},"x":"\\"{0:","y":{3 :4}}'

    found = decode_body(ConsumerOffsetSerializeWrapper, text)

    assert found.offset_table == {"a{0:1,2:3@g": {0: 1, 7: 9, -1: 2}}


def test_single_quotes_and_escapes() -> None:
    assert read_json(b"{a:'it\\'s \"so\" \\u00e9'}") == {"a": 'it\'s "so" é'}
    assert read_json(b'{a:"tab\there"}') == {"a": "tab\there"}
    assert read_json(b"{a:1.5,b:-2L,c:1e3,d:true,e:null,}") == {
        "a": 1.5,
        "b": -2,
        "c": 1000.0,
        "d": True,
    }


def test_an_empty_body_is_an_empty_object() -> None:
    assert decode_body(DataVersion, b"") == DataVersion()


def test_references_stand_for_what_they_name() -> None:
    text = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"topicConfigTable":{'
        b'"%RETRY%g.1":{"attributes":{"a":"b"},"topicName":"%RETRY%g.1"},'
        b'"T":{"attributes":{"$ref":"$.topicConfigTable.\\\\%RETRY\\\\%g\\\\.1.attributes"},"topicName":"T"},'
        b'"U":{"attributes":{"$ref":"$.nowhere"},"topicName":"U"}}}'
    )

    table = decode_body(TopicConfigSerializeWrapper, text).topic_config_table

    assert [table[name].attributes for name in ("%RETRY%g.1", "T", "U")] == [
        {"a": "b"},
        {"a": "b"},
        {},
    ]


def test_references_reach_into_lists_and_never_round_in_circles() -> None:
    assert read_json(b'{"a":[{"x":1}],"b":{"$ref":"$.a[0]"}}') == {"a": [{"x": 1}], "b": {"x": 1}}
    assert read_json(b'{"a":{"b":{"$ref":"$.a"},"c":1},"d":{"$ref":".."}}') == {
        "a": {"b": {"c": 1}, "c": 1}
    }


def test_references_cannot_multiply() -> None:
    many = b'{"a":[' + b"0," * 2_000 + b'0],"b":[' + b'{"$ref":"$.a"},' * 100 + b"0]}"

    with pytest.raises(RemoteProtocolError, match="references"):
        read_json(many)


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense",
        b'{"perm":',
        b'{"perm":"many"}',
        b'{"attributes":[]}',
        b"[]",
        b"{}{}",
        b'{"topicName":"\xff"}',
        b'{"topicName":"\\ud800',
        b"{{}:1}",
        b"{" * 1_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"x":' + b"[" * 100 + b"]" * 100 + b',"order":null}',
        b"{x:" + b"1" * 100_000 + b"z}",
        b"{x:" + b'"\\"' * 1_000_000,
        b"{x:" + b"1 " * MAX_TEXT,
    ],
    ids=lambda text: text[:12].decode("latin1"),
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_body(TopicConfig, text)


DIALECT = st.recursive(
    st.sampled_from(['"a"', "'b'", "1", "-2.5", "true", "null", "x", "1L", '{"$ref":"$.a"}', "\\"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        '"a"',
                        "0",
                        "a",
                        "'q'",
                        '{"topic":"t","brokerName":"b","queueId":1}',
                        '{"queueId":1}',
                        '"\\u0000{"',
                        "{}",
                        '"offsetTable"',
                    ]
                ),
                inner,
            ),
            max_size=4,
        ).map(lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"),
    ),
)
KINDS: list[Any] = [
    HeartbeatData,
    TopicStatsTable,
    ConsumerOffsetSerializeWrapper,
    TopicRouteData,
    dict[int, int],
    list[str],
]


@given(
    data=st.one_of(st.binary(), st.text().map(str.encode), DIALECT.map(str.encode)),
    kind=st.sampled_from(KINDS),
)
def test_anything_is_read_or_refused(data: bytes, kind: Any) -> None:
    try:
        found = decode_body(kind, data)
    except RemoteProtocolError:
        return
    assert decode_body(kind, encode_body(found)) == found


@given(text=DIALECT)
def test_keys_are_read_the_fast_way_as_the_slow_one_does(text: str) -> None:
    def found(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (RemoteProtocolError, msgspec.DecodeError):
            return RemoteProtocolError

    assert found(lambda: fastjson._parse(text.encode())) == found(fastjson._Reader(text).read)


def test_a_table_of_queues_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ConsumeStats({QUEUE: OffsetWrapper(1, 2, 3, 4)}, 1.5)
    monkeypatch.setattr(fastjson, "_Reader", None)
    assert decode_body(ConsumeStats, encode_body(table)) == table


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONGS = st.integers(-(2**63), 2**63 - 1)


@given(
    table=st.dictionaries(
        st.builds(MessageQueue, TEXTS, TEXTS, st.integers(0, 99)),
        st.builds(OffsetWrapper, LONGS, LONGS, LONGS, LONGS),
        max_size=4,
    ),
    offsets=st.dictionaries(
        TEXTS, st.dictionaries(st.integers(0, 99), LONGS, max_size=4), max_size=4
    ),
    java_keys=st.booleans(),
)
def test_bodies_survive_the_round_trip(
    table: dict[MessageQueue, OffsetWrapper], offsets: dict[str, dict[int, int]], java_keys: bool
) -> None:
    for body in (ConsumeStats(table, 1.5), ConsumerOffsetSerializeWrapper(offsets)):
        assert decode_body(type(body), encode_body(body, java_keys=java_keys)) == body
        assert decode_body(type(body), fastjson_pretty(body)) == body
        assert sliced(body, 40, java_keys=True, indent="")[0] == fastjson_pretty(body)


def test_heartbeats_of_other_languages_are_read() -> None:
    text = (
        b'{"clientID":"10.0.0.1@7","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","unitMode":false,'
        b'"subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":"1700000000000","codeSet":null,'
        b'"tagsSet":null,"classFilterMode":"false"}]}],"producerDataSet":null}'
    )

    found = decode_body(HeartbeatData, text)

    assert found.producer_data_set == []
    assert found.consumer_data_set[0].subscription_data_set == [
        SubscriptionData(topic="T", sub_version=1_700_000_000_000)
    ]


class Three(msgspec.Struct):
    """Fields that may be null, as the first, one in the middle and the last."""

    a: object = None
    b: object = None
    c: object = None


NULLS = (
    None, "x,", "{", '":null', ',"b":null}', 'a"', "null", "\\", [None], {"k": None, "l-m": None, "n,": None, "": None}, [], {},
)  # fmt: skip


def test_nulls_are_left_out_the_fast_way_as_the_slow_one_does() -> None:
    for values in itertools.product(NULLS, repeat=3):
        slow = _text(Three(*values), False, None)
        assert json.loads(encode_body(Three(*values))) == json.loads(slow), values
        parts, _ = sliced(Three(*values), 1, java_keys=False, indent=None)
        assert json.loads(parts) == json.loads(slow), values


def test_a_request_body_is_bounded_and_the_dialect_more() -> None:
    decode_request_body(Three, b'{"a":"' + b"x" * 500_000 + b'"}')
    decode_request_body(Three, b"{'a':'" + b"x" * 60_000 + b"'}")
    for body in (b'{"a":"' + b"x" * 600_000 + b'"}', b"{'a':'" + b"x" * 70_000 + b"'}"):
        with pytest.raises(RemoteProtocolError, match="are allowed here"):
            decode_request_body(Three, body)
