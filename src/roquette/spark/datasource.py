"""The data source behind `format("rocketmq")`; Spark finds it through the module `pyspark_rocketmq`."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from roquette.spark.batch_reader import RocketmqBatchReader
from roquette.spark.options import ReadOptions, read_options
from roquette.spark.schema import check_schema, default_schema
from roquette.spark.stream_reader import RocketmqStreamReader


class RocketmqDataSource(DataSource):
    """Reads topics. Options: roquette.spark.options; columns: roquette.spark.schema."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)` and for SQL's USING."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns when the user gives no schema. Raises ConfigError for wrong options."""
        options = self._read_options()
        return default_schema(options.columns, include_properties=options.include_properties)

    def reader(self, schema: StructType) -> RocketmqBatchReader:
        """Spark's door to batch reads."""
        check_schema(schema)
        return RocketmqBatchReader(schema, self._read_options())

    def streamReader(self, schema: StructType) -> RocketmqStreamReader:
        """Spark's door to streams."""
        check_schema(schema)
        return RocketmqStreamReader(schema, self._read_options())

    def _read_options(self) -> ReadOptions:
        return read_options(self.options)
