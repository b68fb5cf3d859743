"""`from_registry`: a column of bodies as a struct, for jobs of one's own."""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

ERROR, RESCUED = "_error", "_rescued"
_KEPT: Final = 16  # readers of a worker


def from_registry(body: "Column | str", url: str, subject: str) -> "Column":
    """Bodies in Confluent's wire format (Avro, JSON Schema, Protobuf) as a struct of the subject's newest schema's fields.

    Beside them it has `_error`, why a body could not be read (then all else is null), and `_rescued`, JSON of fields that
    only a newer schema has. Workers ask the registry for schemas that they do not know yet.

    Args:
        url: of a registry with Confluent's interface; who asks is what ROQUETTE_REGISTRY_USER_INFO or
            ROQUETTE_REGISTRY_TOKEN says, at the driver and at executors.
        subject: such as "orders-value".

    Raises:
        ConfigError: the registry refuses, or the schema is no record. UnknownSchema: there is no such subject.
        ConnectError: the registry does not answer.
    """
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import StructType

    from roquette_spark.pipelines.rows.registry_rows import newest_columns
    from roquette_spark.registry import Registry

    columns = newest_columns(Registry(url), subject)
    whole = StructType.fromJson(json.loads(columns)).add(ERROR, "string").add(RESCUED, "string")

    def read(bodies: pa.Array) -> pa.Array:
        return _read(columns, url, bodies)

    return arrow_udf(read, whole)(body)


def _read(columns: str, url: str, bodies: Any) -> Any:
    import pyarrow as pa

    found = _reader(columns, url).read(bodies.cast(pa.binary()))
    rescued = found.rescued
    if rescued is None:
        rescued = pa.nulls(len(bodies), pa.string())
    names = [field["name"] for field in json.loads(columns)["fields"]]
    return pa.StructArray.from_arrays(
        [*found.columns, found.errors, rescued], names=[*names, ERROR, RESCUED]
    )


@lru_cache(maxsize=_KEPT)
def _reader(columns: str, url: str) -> Any:
    from roquette_spark.pipelines.rows.registry_rows import RegistryReader
    from roquette_spark.registry import Registry

    return RegistryReader(columns, Registry(url))
