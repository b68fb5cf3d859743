"""Avro bodies as columns, in a worker: the writer's schema is given, a body is one record without a container."""

import json
from datetime import time
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from roquette_spark.pipelines.kit.avro_bodies import read_body
from roquette_spark.pipelines.rows.decoder import Bodies, arrow_of
from roquette_spark.pipelines.rows.kinds import NULL, Kind

_TOLD_AS_TEXT: Final = (
    "uuid",
    "time-millis",
    "time-micros",
)  # logical types whose columns are texts


class AvroReader:
    """Reads the bodies of one task."""

    def __init__(self, body_schema: str, avro_schema: str) -> None:
        import fastavro
        from pyspark.sql.types import StructType

        self._schema = arrow_of(StructType.fromJson(json.loads(body_schema)))
        self.news: Kind = NULL
        self._avro = fastavro.parse_schema(json.loads(avro_schema))
        self._has_texts = any(name in avro_schema for name in _TOLD_AS_TEXT)

    def read(self, bodies: pa.Array) -> Bodies:
        found = [read_body(body, self._avro) for body in bodies.to_pylist()]
        if self._has_texts:
            found = [(_texts(value), error) for value, error in found]
        columns = [
            pa.array(
                [None if value is None else value[field.name] for value, _ in found], field.type
            )
            for field in self._schema
        ]
        return Bodies(columns, pa.array([error for _, error in found], pa.string()))


def _texts(value: Any) -> Any:
    """The value with texts for what Arrow has no text for by itself."""
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
