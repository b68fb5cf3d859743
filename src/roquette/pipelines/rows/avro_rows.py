"""Avro bodies as columns, in a worker: the writer's schema is given, a body is one record without a container."""

import json

import pyarrow as pa

from roquette.pipelines.kit.avro_bodies import read_body
from roquette.pipelines.rows.decoder import Bodies, arrow_of
from roquette.pipelines.rows.kinds import NULL, Kind


class AvroReader:
    """Reads the bodies of one task."""

    def __init__(self, body_schema: str, avro_schema: str) -> None:
        import fastavro
        from pyspark.sql.types import StructType

        self._schema = arrow_of(StructType.fromJson(json.loads(body_schema)))
        self.news: Kind = NULL
        self._avro = fastavro.parse_schema(json.loads(avro_schema))

    def read(self, bodies: pa.Array) -> Bodies:
        """As BodyReader says."""
        found = [read_body(body, self._avro) for body in bodies.to_pylist()]
        columns = [
            pa.array(
                [None if value is None else value[field.name] for value, _ in found], field.type
            )
            for field in self._schema
        ]
        return Bodies(columns, pa.array([error for _, error in found], pa.string()))
