"""The stream reader of options that are wrong."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from roquette.errors import RoquetteError
from roquette_spark.values.errors import HIDE, advised


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises, in the first hook that Spark calls, the error of the `streamReader()` that returns it.

    PySpark's runner (4.2, 4.3) replaces any error of `streamReader()` itself by an UnboundLocalError of its own.
    """

    def __init__(self, error: RoquetteError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        os.environ[HIDE] = "1"
        raise advised(self._error, "")

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()

    def commit(self, end: Mapping[str, object]) -> None:
        self._refuse()

    def stop(self) -> None:
        """Nothing was opened."""
