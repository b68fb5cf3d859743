"""Our client of schema registries."""

import base64
from collections.abc import Iterator

import pytest
from tests.pipelines.fake_registry import FakeRegistry, fake_registry

from roquette.errors import ConfigError, ConnectError
from roquette.spark.registry import MAX_ANSWER, Registry, Schema, UnknownSchema

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
    fake.answers["/schemas/ids/6?format=serialized"] = {"schema": "message A {}"}
    registry = Registry(fake.url, {})
    assert registry.descriptors(5) == registry.descriptors_of("top-value") == [b"base", b"top"]
    with pytest.raises(ConfigError, match="only as text"):
        registry.descriptors(6)
