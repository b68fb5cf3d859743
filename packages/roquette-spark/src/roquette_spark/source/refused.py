"""The stream reader of options that are wrong."""

import os
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from roquette.errors import RoquetteError
from roquette_spark.values.errors import HIDE, advised


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
