"""The data source behind `format("rocketmq")`; Spark finds it through the module `pyspark_rocketmq`.

The modules that need pyarrow and numpy are imported by the hooks: what is missing is then told in one line.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from roquette.errors import ConfigError
from roquette_spark.source.queues import open_reader, require_queues
from roquette_spark.source.refused import RefusedStream
from roquette_spark.values.errors import plain_errors
from roquette_spark.values.options import ReadOptions, read_options, refuse_ending, write_options
from roquette_spark.values.schema import check_schema, default_schema

if TYPE_CHECKING:
    from roquette_spark.sink.writer import RocketmqBatchWriter, RocketmqStreamWriter
    from roquette_spark.source.batch_reader import RocketmqBatchReader
    from roquette_spark.source.stream_reader import RocketmqStreamReader


class RocketmqDataSource(DataSource):
    """Reads topics, and writes to them.

    Options: roquette_spark.values.options, .sink.options. Columns: roquette_spark.values.schema, .sink.schema.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        """The columns when the user gives no schema.

        Raises:
            ConfigError: options are wrong, or the topic does not exist: said now, not in the first action.
        """
        with plain_errors():
            options = self._read_options()
            columns = default_schema(
                options.columns,
                include_properties=options.include_properties,
                body_as_string=options.body_as_string,
            )
        with plain_errors(options.namesrv_addr):
            require_queues(open_reader(options), options)
        return columns

    def reader(self, schema: StructType) -> "RocketmqBatchReader":
        with plain_errors():
            options = self._read_options()
            check_schema(schema)
            from roquette_spark.source.batch_reader import RocketmqBatchReader

            return RocketmqBatchReader(schema, options)

    def streamReader(self, schema: StructType) -> "RocketmqStreamReader | RefusedStream":
        """Spark's door to streams; what is wrong is said by the first hook of the reader."""
        try:
            options = self._read_options()
            refuse_ending(options)
            check_schema(schema)
        except ConfigError as error:
            return RefusedStream(error)
        from roquette_spark.source.stream_reader import RocketmqStreamReader

        return RocketmqStreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> "RocketmqBatchWriter":
        with plain_errors():
            require_arrow()
            from roquette_spark.sink.writer import RocketmqBatchWriter, refuse_overwrite

            refuse_overwrite(overwrite)
            return RocketmqBatchWriter(schema, write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "RocketmqStreamWriter":
        with plain_errors():
            require_arrow()
            from roquette_spark.sink.writer import RocketmqStreamWriter, refuse_overwrite

            refuse_overwrite(overwrite)
            return RocketmqStreamWriter(schema, write_options(self.options))

    def _read_options(self) -> ReadOptions:
        require_arrow()
        return read_options(self.options)


def require_arrow() -> None:
    """Raises ConfigError where Spark's Python lacks what rows travel in."""
    for module in ("pyarrow", "numpy"):
        if find_spec(module) is None:
            raise ConfigError(
                f"rocketmq: {module} is not installed where Spark's Python runs: "
                'pip install "roquette[spark]" there, or set PYSPARK_PYTHON to a Python that has it'
            )
