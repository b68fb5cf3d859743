"""Readers of formats that are tables only, and the stream reader of options that are wrong."""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from roquette.errors import RoquetteError
from roquette_spark.values.errors import HIDE, advised, plain_errors

if TYPE_CHECKING:
    import pyarrow as pa


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises, in the first hook that Spark calls, the error of the `streamReader()` that returns it.

    PySpark's runner (4.2, 4.3) replaces any error of `streamReader()` itself by an UnboundLocalError of its own.
    """

    def __init__(self, error: RoquetteError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        os.environ[HIDE] = "1"
        raise advised(self._error, "")

    initialOffset = latestOffset = partitions = read = commit = _refuse
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse

    def stop(self) -> None:
        """Nothing was opened."""


class TaskReader(DataSourceReader):
    """Plans in the driver, a partition for each piece of work; a pickled copy does it in the workers."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._schema = schema
        self._options = options

    def work(self) -> Iterable[Any]:
        """What is to be done, by one task each."""
        raise NotImplementedError

    def batches(self, work: Any) -> "Iterator[pa.RecordBatch]":
        """What a task gives."""
        raise NotImplementedError

    def partitions(self) -> list[InputPartition]:
        """Never an empty list: Spark wants a partition although there is no work."""
        with plain_errors():
            return [InputPartition(each) for each in self.work()] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if partition is not None and partition.value is not None:
            with plain_errors():
                yield from self.batches(partition.value)
