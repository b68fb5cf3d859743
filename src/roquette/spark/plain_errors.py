"""What goes wrong, in one line that says what to do, instead of a stack."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from roquette.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    ConnectError,
    RequestTimeout,
    RoquetteError,
    RouteNotFound,
)
from roquette.spark.source.options import ReadOptions

# What pyspark looks at when it writes a worker's exception for the driver (spark.sql.execution.pyspark.
# udf.hideTraceback.enabled sets it for all). The process ends with the error: nobody else sees the change.
_HIDE = "SPARK_HIDE_TRACEBACK"
_OURS = re.compile(r"(?:^|[\s:])(?:[\w.]+\.)?[A-Z]\w+: (rocketmq\w*: [^\n]*)")


class SourceError(ClientError):
    """A cluster cannot be read as asked: where, why, what to do."""


@contextmanager
def plain_errors(options: ReadOptions | None = None) -> Iterator[None]:
    """Errors of ours leave with one line: no stack of Python, and words for what the network says."""
    try:
        yield
    except RoquetteError as error:
        os.environ[_HIDE] = "1"
        raise advised(error, options) from None


def advised(error: RoquetteError, options: ReadOptions | None) -> RoquetteError:
    """The error with advice, where the text alone would not tell people what to do."""
    if str(error).startswith("rocketmq"):
        return error
    if isinstance(error, RouteNotFound):
        return SourceError(
            f"rocketmq: no broker serves {error.topic} any more ({error}): "
            "its broker is down, or the topic was removed; start the query again when it is back"
        )
    if isinstance(error, (ConnectError, RequestTimeout)):
        addresses = "" if options is None else options.namesrv_addr
        servers = {one.strip() for one in addresses.replace(",", ";").split(";")}
        if any(server and server in str(error) for server in servers):
            return SourceError(
                f"rocketmq: no name server answers ({error}); "
                "is it running, and is option namesrvAddr right?"
            )
        return SourceError(
            f"rocketmq: a broker does not answer ({error}); is it running, and can this machine reach "
            "the address it registered?"
        )
    if isinstance(error, BrokerError):
        return SourceError(f"rocketmq: the broker refuses: {' '.join(str(error).split())}")
    kind = ConfigError if isinstance(error, ConfigError) else SourceError
    return kind(f"rocketmq: {' '.join(str(error).split())}")


def plain_message(error: BaseException) -> str | None:
    """Our line within an exception of Spark's, which has the stacks of all that stood between; or None."""
    found = _OURS.findall(str(error))
    return found[-1] if found else None
