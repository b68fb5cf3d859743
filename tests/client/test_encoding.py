"""Values become bodies: `encode=` of the client, and the encoder for JSON, which the decoders of applications read."""

import asyncio
import dataclasses
import datetime
import functools
import io
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pydantic
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from tests.pipelines.fake_registry import FakeRegistry, fake_registry

import roquette
from roquette.client.app.values import decoder_of
from roquette_spark.pipelines.rows.registry_rows import RegistryReader, newest_columns
from roquette_spark.registry import Registry
from roquette_testing.embedded import EmbeddedBroker


@dataclasses.dataclass
class Line:
    sku: str
    count: int


class Order(msgspec.Struct):
    number: int
    lines: list[Line]


class Model(pydantic.BaseModel):
    number: int
    at: datetime.datetime


class Nested(msgspec.Struct):
    model: Model


NOON = datetime.datetime(2026, 11, 27, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Line, Line("a", 2)),
        (Order, Order(7, [Line("a", 2), Line("b", 1)])),
        (Model, Model(number=7, at=NOON)),
        (Nested, Nested(Model(number=7, at=NOON))),
        (dict, {"a": [1, None, "x"]}),
        (int, 7),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_json_comes_back_as_what_it_was(kind: Any, value: object) -> None:
    assert decoder_of(kind, "value")(roquette.to_json(value)) == value


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be made into JSON"):
        roquette.to_json({"a": object()})


def test_each_way_of_sending_encodes_and_bytes_stay_as_they_are() -> None:
    async def scenario() -> None:
        async with (
            EmbeddedBroker() as broker,
            broker.client(encode=roquette.to_json, group="shop") as mq,
        ):
            await mq.send("orders", {"n": 1})
            await (await mq.send_nowait("orders", {"n": 2}))
            await mq.send_oneway("orders", {"n": 3})
            await mq.send_batch("orders", [{"n": 4}, b"raw", roquette.Message("orders", b"whole")])
            async with mq.transaction("orders", {"n": 5}):
                pass
            await mq.send("orders", "text")
            await mq.flush()
            bodies = {message.body for message in broker.messages("orders")}
            assert bodies == {b'{"n":%d}' % n for n in range(1, 6)} | {b"raw", b"whole", b"text"}

            async def double(message: roquette.ReceivedMessage) -> dict[str, int]:
                return {"n": 2 * msgspec.json.decode(message.body)["n"]}

            async with mq.serve("sums", double, group="sums"):
                assert (await mq.request("sums", {"n": 4}, timeout=20)).body == b'{"n":8}'

    asyncio.run(scenario())


def test_the_twin_encodes_too() -> None:
    with EmbeddedBroker() as broker, broker.sync_client(encode=roquette.to_json) as mq:
        mq.send("orders", Line("a", 2))
        assert broker.messages("orders")[0].body == b'{"sku":"a","count":2}'


def test_types_that_encode_differently_are_told_apart_by_a_function() -> None:
    async def scenario() -> None:
        @functools.singledispatch
        def encode(value: object) -> bytes:
            raise TypeError("nobody registered it")

        encode.register(Line, roquette.to_json)
        encode.register(StringValue, StringValue.SerializeToString)
        async with EmbeddedBroker() as broker, broker.client(encode=encode) as mq:
            await mq.send("lines", Line("a", 2))
            await mq.send("names", StringValue(value="x"))
            (name,) = broker.messages("names")
            assert StringValue.FromString(name.body).value == "x"
            with pytest.raises(roquette.MessageIllegal, match="no body of int: TypeError: nobody"):
                await mq.send("lines", 7)

    asyncio.run(scenario())


def test_avro_by_a_registry_is_what_the_pipelines_read() -> None:
    schema = {"type": "record", "name": "Payment", "fields": [{"name": "cents", "type": "long"}]}

    def to_avro(value: object) -> bytes:
        out = io.BytesIO()
        out.write(b"\0" + (7).to_bytes(4, "big"))
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    async def scenario(registry: FakeRegistry) -> None:
        async with EmbeddedBroker() as broker, broker.client(encode=to_avro) as mq:
            await mq.send_batch("payments", [{"cents": 700}, {"cents": -1}])
            with pytest.raises(roquette.MessageIllegal, match="no body of dict"):
                await mq.send("payments", {"euros": 7})
            bodies = [message.body for message in broker.messages("payments")]
        asked = Registry(registry.url)
        found = RegistryReader(newest_columns(asked, "payments-value"), asked).read(
            pa.array(bodies)
        )
        assert [column.to_pylist() for column in found.columns] == [[700, -1]]
        assert found.errors.to_pylist() == [None, None]

    with fake_registry() as registry:
        registry.register("payments-value", 7, schema)
        asyncio.run(scenario(registry))


def test_values_without_an_encoder_and_wrong_encoders_are_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(roquette.ConfigError, match="cannot be called"):
            roquette.Client("127.0.0.1:1", encode="json")  # type: ignore[call-overload]

        async def later(value: object) -> bytes:
            return b""

        with pytest.raises(roquette.ConfigError, match="coroutine function"):
            roquette.Client("127.0.0.1:1", encode=later)  # type: ignore[arg-type]
        async with EmbeddedBroker() as broker:
            async with broker.client() as mq:
                with pytest.raises(TypeError, match=r"not dict; or say Client\(encode=\)"):
                    await mq.send("orders", {"n": 1})
            async with broker.client(encode=repr) as mq:
                with pytest.raises(TypeError, match="encode made str of dict, not bytes"):
                    await mq.send("orders", {"n": 1})
                with pytest.raises(TypeError, match="a Message has its own body"):
                    await mq.send(roquette.Message("orders", b"x"), {})

    asyncio.run(scenario())
