"""Our client of schema registries."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.pipelines.fake_registry import FakeRegistry, fake_registry

from roquette.errors import ConfigError, ConnectError
from roquette_spark.registry import (
    MAX_ANSWER,
    Registry,
    Schema,
    UnknownSchema,
    UnusableProto,
    descriptors_of_text,
)

LONG = {"type": "record", "name": "Long", "fields": []}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        yield found


def test_a_schema_by_its_id_is_asked_for_once(fake: FakeRegistry) -> None:
    fake.register("orders-value", 7, LONG)
    registry = Registry(f"{fake.url}/", {})
    assert registry.schema(7) is registry.schema(7)
    assert registry.schema(7).kind == "AVRO"
    assert fake.asked == ["/schemas/ids/7"]
    assert "Authorization" not in fake.headers


def test_the_newest_of_a_subject_whose_name_needs_escapes(fake: FakeRegistry) -> None:
    fake.register("a%2Fb-value", 3, "{}", "JSON")
    assert Registry(fake.url, {}).latest("a/b-value") == Schema("JSON", "{}")


def test_references_come_before_what_names_them_each_once(fake: FakeRegistry) -> None:
    def refer(*subjects: str) -> list[dict[str, object]]:
        versions = {"base": 1, "left": 2, "right": 3}
        return [{"name": s, "subject": s, "version": versions[s]} for s in subjects]

    fake.register("base", 1, '"base"')
    fake.register("left", 2, '"left"', references=refer("base"))
    fake.register("right", 3, '"right"', references=refer("base"))
    fake.register("top", 4, '"top"', references=refer("left", "right"))
    assert Registry(fake.url, {}).schema(4).references == ('"base"', '"left"', '"right"')


def test_references_that_do_not_end(fake: FakeRegistry) -> None:
    circle = [{"name": "x", "subject": "x", "version": 1}]
    fake.register("x", 1, '"x"', references=circle)
    with pytest.raises(ConfigError, match="do not end"):
        Registry(fake.url, {}).schema(1)


def test_who_asks_is_what_the_environment_says(fake: FakeRegistry) -> None:
    fake.register("s", 1, LONG)
    Registry(fake.url, {"ROQUETTE_REGISTRY_USER_INFO": "ann:s3cret"}).schema(1)
    assert fake.headers["Authorization"] == "Basic " + base64.b64encode(b"ann:s3cret").decode()
    Registry(fake.url, {"ROQUETTE_REGISTRY_TOKEN": "t0ken"}).schema(1)
    assert fake.headers["Authorization"] == "Bearer t0ken"
    with pytest.raises(ConfigError, match="not both"):
        Registry(fake.url, {"ROQUETTE_REGISTRY_USER_INFO": "a:b", "ROQUETTE_REGISTRY_TOKEN": "c"})


@pytest.mark.parametrize(
    "url", ["", "registry:8081", "ftp://registry", "file:///etc/passwd", "http://"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="no address such as http://registry:8081"):
        Registry(url, {})


def test_an_address_with_a_user_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        Registry("http://ann:s3cret@registry:8081", {})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (404, UnknownSchema, "has no schemas/ids/1"),
        (401, ConfigError, "ROQUETTE_REGISTRY_TOKEN"),
        (403, ConfigError, "refuses"),
        (500, ConnectError, "cannot answer now"),
        (429, ConnectError, "cannot answer now"),
        (302, ConfigError, "status 302"),
        ([], ConfigError, "no JSON object"),
        ({"schema": "x" * MAX_ANSWER}, ConfigError, "no JSON object"),
        ({"schemaType": "XML", "schema": "x"}, ConfigError, "of type 'XML'"),
        ({"schema": 7}, ConfigError, "of type 'AVRO'"),
    ],
)
def test_answers_that_are_none(
    fake: FakeRegistry, answer: object, kind: type[Exception], words: str
) -> None:
    fake.answers["/schemas/ids/1"] = answer
    secret = {"ROQUETTE_REGISTRY_TOKEN": "t0ken"}
    with pytest.raises(kind, match=words) as refused:
        Registry(fake.url, secret).schema(1)
    assert "t0ken" not in str(refused.value)
    assert not any("elsewhere" in path for path in fake.asked)


def test_a_registry_that_is_not_there() -> None:
    with pytest.raises(ConnectError, match="does not answer"):
        Registry("http://127.0.0.1:1", {}).schema(1)


def test_descriptors_of_protobuf_come_after_those_they_import(fake: FakeRegistry) -> None:
    def text(name: str) -> str:
        return base64.b64encode(name.encode()).decode()

    needs = {"references": [{"name": "base.proto", "subject": "base", "version": 1}]}
    fake.answers["/subjects/base/versions/1?format=serialized"] = {"schema": text("base")}
    fake.answers["/schemas/ids/5?format=serialized"] = {"schema": text("top"), **needs}
    fake.register("top-value", 5, "message Top {}", "PROTOBUF")
    registry = Registry(fake.url, {})
    assert registry.descriptors(5) == registry.descriptors_of("top-value") == [b"base", b"top"]


PLACE = 'syntax = "proto3"; package x; message Place { string name = 1; }'
READING = """syntax = "proto3"; package x; import "common/place.proto"; import "google/protobuf/timestamp.proto";
message Reading { int64 n = 1; Place place = 2; google.protobuf.Timestamp at = 3; }"""


def test_texts_of_protobuf_are_compiled_where_a_registry_gives_nothing_else(
    fake: FakeRegistry,
) -> None:
    """As Apicurio's, whose serialized form is a descriptor's bytes in a JSON text, and no base64."""
    fake.register("place", 1, PLACE, "PROTOBUF")
    needs = [{"name": "common/place.proto", "subject": "place", "version": 1}]
    fake.register("top-value", 6, READING, "PROTOBUF", references=needs)
    fake.register("bad-value", 7, "message A {", "PROTOBUF")
    for number in (6, 7):
        fake.answers[f"/schemas/ids/{number}?format=serialized"] = {"schema": "\n\x07Reading"}

    files = Registry(fake.url, {}).descriptors_of("top-value")

    names = [file.name for file in map(FileDescriptorProto.FromString, files)]
    assert sorted(names[:2]) == ["common/place.proto", "google/protobuf/timestamp.proto"]
    assert [each.name for each in FileDescriptorProto.FromString(files[2]).message_type] == [
        "Reading"
    ]
    with pytest.raises(UnusableProto, match=r"roquette-schema.proto:1:1\d: .*end of input"):
        Registry(fake.url, {}).descriptors(7)


@pytest.mark.parametrize(
    "name", ["../outside.proto", "/outside.proto", "a//b", "", "a\0b", "c:d", "x" * 300, "a/./b"]
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(UnusableProto, match=r"unusable name|cannot be kept"):
        descriptors_of_text(PLACE, {name: PLACE})


def test_an_import_is_never_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "here.proto").write_text(PLACE)
    for name in (f"{tmp_path}/here.proto", "../here.proto", "here.proto"):
        with pytest.raises(UnusableProto, match=r"not found|not allowed"):
            descriptors_of_text(f'syntax = "proto3"; import "{name}"; message A {{}}', {})
