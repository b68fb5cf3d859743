"""Looks at a cluster and at this machine: `top`, `events`, `selftest` and `bundle`."""

import asyncio
import contextlib
import io
import itertools
import os.path
import platform
import shlex
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from roquette import __version__
from roquette.admin.command import Flag, command
from roquette.base.form import form
from roquette.base.options import counted
from roquette.cli.apply import Expected, expected_of
from roquette.cli.connect import Cluster, Every, follow
from roquette.cli.exit_codes import UNHEALTHY
from roquette.cli.output import Output, local_time, prints_lines, say, show_value
from roquette.errors import BrokerError, ClientError, RoquetteError

if TYPE_CHECKING:
    from roquette.admin.facts import ClusterFacts

Count = Annotated[int, Flag("--count -c", "End after so many; 0: never.", 0)]


@command(watched=True)
def cluster(where: Cluster, *, file: Expected = None) -> None:
    """Show clusters, brokers, their addresses and traffic. Exit code 10 when one is missing, silent or refuses."""
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.top import broker_rows
    from roquette.base.clock import SystemClock

    brokers = broker_rows(
        where.run(who_is_there(where.addresses(), SystemClock())), expected_of(where, file)
    )
    where.show(brokers, empty="the name server knows no broker yet")
    if not brokers or any(broker.error for broker in brokers):
        raise typer.Exit(UNHEALTHY)


def top(
    where: Cluster,
    *,
    most: Annotated[int, Flag("--most", "Rows.", 1)] = 20,
    every: Every = 2.0,
    count: Count = 0,
) -> None:
    """Watch what the cluster is busy with: rates and lag of topics and groups, until Ctrl-C."""
    from roquette.admin.doctor.examination import where_they_are
    from roquette.admin.top import busiest

    def tell(before: "ClusterFacts", now: "ClusterFacts") -> None:
        rows = busiest(before, now)
        where.show(rows[:most], empty="no topics yet")
        for bound in [
            *now.left_out,
            *([counted(len(rows) - most, "row")] if len(rows) > most else []),
        ]:
            say(f"left out: {bound}")

    follow(where, where_they_are, tell, every, count, redraws=True)


def events(where: Cluster, *, every: Every = 2.0, count: Count = 0) -> None:
    """Tell what happens, until Ctrl-C: brokers that join, leave, fall silent, refuse messages, take over or are drained.

    Looks are compared: what begins and ends between two of them is not seen. --count: looks.
    """
    from roquette.admin.doctor.examination import who_is_there
    from roquette.admin.top import events

    as_lines = prints_lines(where.output)

    def tell(before: "ClusterFacts", now: "ClusterFacts") -> None:
        for each in events(before, now):
            if as_lines:
                show_value([each], Output.JSONL)
            else:
                print(f"{local_time(each.at_ms)}  {each.subject} {each.kind}: {each.says}")

    follow(where, who_is_there, tell, every, count, redraws=False)


# `roquette selftest`: how fast this machine's disk and the ways to the cluster's servers are.


FILE_SIZE: Final = 64 << 20
SLOW_MS: Final = {"sync of 4 KiB": 20.0, "write and sync of 1 MiB": 100.0, "question": 20.0}
"""What is done, and the 99th percentile above which it is slow."""


class ProbeRow(msgspec.Struct, frozen=True):
    """Row of what one thing took, in milliseconds; -1: it could not be done, for `error`."""

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


# `roquette bundle`: what our commands say of a cluster, in one file.


COMMANDS: Final = "doctor;cluster;broker status;broker config get;namesrv config get;namesrv diff"


def bundle(
    cluster: Cluster,
    line: typer.Context,
    to: Annotated[str, Flag("FILE", "A new file.")] = "roquette-bundle.tar.gz",
    *,
    log: Annotated[list[str] | None, Flag("--log FILE")] = None,
    lines: Annotated[int, Flag(least=1)] = 2_000,
) -> None:
    """Put what a report needs into one file: doctor, settings, metrics, versions, ends of logs.

    Passwords, keys and tokens are left out, and no message is in it. The file is yours alone (mode 0600): look at it
    before you send it.

    Args:
        log: A log on this machine; may be repeated.
        lines: Last lines of each log.
    """
    from roquette.admin.bundle import metrics, without_secrets
    from roquette.base.files import read_lines, write_private

    async def measured() -> dict[str, str]:
        async with cluster.client("TOOLS_PRODUCER") as client:
            return await metrics(client)

    texts = {f"metrics-{address}.txt": text for address, text in asyncio.run(measured()).items()}
    python = f"{platform.python_version()} on {platform.platform()}"
    texts["versions.txt"] = f"roquette {__version__} ({form()})\npython {python}\n"
    for number, path in enumerate(log or (), 1):
        end = b"\n".join(deque(read_lines(path), lines)).decode(errors="replace")
        texts[f"log-{number}-{path.rpartition('/')[2]}"] = end
    for words_typed in COMMANDS.split(";"):
        words = shlex.split(cluster.typed(f"`roquette {words_typed}`").strip("`"))[1:]
        texts[f"{words_typed.replace(' ', '-')}.json"] = _output_of(line.find_root().command, words)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, text in texts.items():
            data = without_secrets(text).encode()
            entry = tarfile.TarInfo(f"roquette-bundle/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    write_private(to, target.getvalue())
    if cluster.for_programs:
        cluster.show_value({"file": to, "parts": [*texts]})
    else:
        say(f"{to}: {', '.join(texts)}")


def _output_of(root: Any, words: list[str]) -> str:
    """Return what a command of ours prints for programs, or why it does not."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            root.main([*words, "-o", "json"], prog_name="roquette", standalone_mode=False)
    except RoquetteError as error:
        return f"{out.getvalue()}error: {error}"
    return out.getvalue()
