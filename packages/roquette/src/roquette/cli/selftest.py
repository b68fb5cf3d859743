"""`roquette selftest`: how fast this machine's disk and the ways to the cluster's servers are."""

import asyncio
import contextlib
import itertools
import os.path
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec
import typer

from roquette.admin.command import Flag
from roquette.cli.connect import UNHEALTHY, Cluster

FILE_SIZE: Final = 64 << 20
SLOW_MS: Final = {"sync of 4 KiB": 20.0, "write and sync of 1 MiB": 100.0, "question": 20.0}
"""What is done, and the 99th percentile above which it is slow."""


class ProbeRow(msgspec.Struct, frozen=True):
    """What one thing took, in milliseconds; -1: it could not be done, for `error`."""

    where: str
    what: str
    p50_msec: float
    p99_msec: float
    most_msec: float
    slow: bool
    error: str = ""


def selftest(
    cluster: Cluster,
    *,
    directory: Annotated[str | None, Flag("--dir DIR")] = None,
    times: Annotated[int, Flag(least=2, most=10_000)] = 200,
) -> None:
    """Measure the ways to each name server and broker, and the disk under a directory. Exit code 10 when one is slow.

    It changes nothing at the cluster, and takes its file away again.

    Args:
        directory: Try its disk, too, by a file of 64 MiB.
        times: Of each thing.
    """
    rows = asyncio.run(_selftest(cluster, directory, times))
    cluster.show(rows)
    if any(row.slow or row.error for row in rows):
        raise typer.Exit(UNHEALTHY)


async def _selftest(cluster: Cluster, directory: str | None, times: int) -> list[ProbeRow]:
    from roquette.admin.cluster import cluster_info
    from roquette.client.calls import get_config
    from roquette.errors import BrokerError, ClientError

    now: Callable[[], float] = asyncio.get_running_loop().time
    async with cluster.client("TOOLS_PRODUCER") as client:
        rows = [] if directory is None else [*_disk(directory, times, now)]
        table = (await client.session.run(cluster_info())).broker_addr_table
        brokers = {at for data in table.values() for at in data.broker_addrs.values()}
        for address in [*cluster.addresses(), *sorted(brokers)]:
            took, error = [now()], ""
            try:
                for _ in range(times):
                    with contextlib.suppress(
                        BrokerError
                    ):  # it has no such thing: that it answers counts
                        await client.session.api.call(address, get_config("SELFTEST", "none"))
                    took.append(now())
            except ClientError as failed:
                error = str(failed)
            rows.append(_row(address, "question", took[1:], error))  # the first one connects
    return rows


def _disk(directory: str, times: int, now: Callable[[], float]) -> Iterator[ProbeRow]:
    """Nothing else runs meanwhile: it may block."""
    from roquette.base.files import OsFiles

    path = os.path.join(directory, ".roquette-selftest")
    file = OsFiles().open_file(path, FILE_SIZE, create=True)
    try:
        for what, size in (("sync of 4 KiB", 4 << 10), ("write and sync of 1 MiB", 1 << 20)):
            data, took = bytes(size), [now()]
            for number in range(times):
                file.pwrite(data, number * size % FILE_SIZE)
                file.sync()
                took.append(now())
            yield _row(directory, what, took, "")
    finally:
        file.close()
        OsFiles().remove(path)


def _row(where: str, what: str, moments: list[float], error: str) -> ProbeRow:
    took = sorted((b - a) * 1000 for a, b in itertools.pairwise(moments)) or [-1.0]
    p50, p99 = (took[len(took) * part // 100] for part in (50, 99))
    return ProbeRow(where, what, p50, p99, took[-1], p99 > SLOW_MS[what], error)
