"""`roquette produce` and `roquette consume`, and what shows messages as they come: `msg tail` and `dlq ls`."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from roquette.admin.command import Flag
from roquette.admin.newest import (
    READER,
    BeforePlace,
    Expression,
    Tags,
    filter_of,
    page_words,
    parse_before,
    row_of,
)
from roquette.admin.stored import (
    ManyAtMost,
    Since,
    fields_of,
    letters_of,
    moment_of,
    note_seen,
)
from roquette.base.files import read_lines
from roquette.base.options import counted
from roquette.cli.connect import Cluster, ContextName, LoginFile, NameServers, client_of, place_of
from roquette.cli.output import say
from roquette.client.consumer_options import sql
from roquette.errors import ClientError, ConfigError, RoquetteError, RouteNotFound
from roquette.message.names import DLQ_PREFIX, dlq_topic

if TYPE_CHECKING:
    from datetime import datetime

    from roquette.admin.newest import NewestPage
    from roquette.admin.seek import QueuePlace
    from roquette.client.client import Client
    from roquette.client.producer import SendReceipt
    from roquette.message.message import MessageQueue, ReceivedMessage


# `roquette produce`: from arguments, a file or standard input.


def produce(
    cluster: Cluster,
    topic: str,
    body: Annotated[
        list[str] | None,
        Flag("BODY", "Messages; without any, lines of --file or of standard input."),
    ] = None,
    *,
    file: str | None = None,
    tag: str | None = None,
    key: str | None = None,
    shard_key: Annotated[str | None, Flag("--shard-key KEY")] = None,
    delay_level: Annotated[int, Flag(least=0, most=18)] = 0,
) -> None:
    """Send messages: one for each argument, or one for each line (any bytes) of a file or of standard input.

    Args:
        file: One message a line; - is standard input.
        tag: The messages' tag.
        key: The messages' key.
        shard_key: Send all to the one queue of this key, in order.
        delay_level: Deliver later: 1 is 1 s, 18 is 2 h.
    """
    if body and file:
        raise ConfigError("give messages as arguments or --file, not both")
    if body and "" in body:
        raise ConfigError("RocketMQ has no empty messages: nothing was sent")
    lines = map(os.fsencode, body) if body else _lines(file or "-")

    async def run() -> tuple[int, int]:
        async with cluster.client() as client:
            options: dict[str, Any] = {"tag": tag, "key": key, "shard_key": shard_key}
            send = partial(client.send_nowait, topic, delay_level=delay_level, **options)
            return await _send_all(send, lines)

    count, empty = asyncio.run(run())
    if empty:
        say(f"{counted(empty, 'empty line')} left out: RocketMQ has no empty messages")
    if cluster.for_programs:
        cluster.show_value({"topic": topic, "sent": count})
    else:
        say(f"sent {counted(count, 'message')} to {topic}")


async def _send_all(
    send: Callable[[bytes], Awaitable["asyncio.Future[SendReceipt]"]], lines: Iterable[bytes]
) -> tuple[int, int]:
    """Send lines; how many there were, and how many were empty. An error says how many were sent all the same."""
    count = empty = stored = 0
    waiting: list[asyncio.Future[SendReceipt]] = []
    failed: list[BaseException] = []

    async def settle() -> int:
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        waiting.clear()
        failed.extend(end for end in ends if isinstance(end, BaseException))
        return sum(not isinstance(end, BaseException) for end in ends)

    try:
        for line in lines:
            if not line:
                empty += 1
                continue
            count += 1
            waiting.append(await send(line))
            if count == 1 or len(waiting) >= 1000:  # the first one creates the topic
                stored += await settle()
                if failed:
                    break
    except RoquetteError as error:
        failed.append(error)
    stored += await settle()
    if failed and stored and isinstance(failed[0], RoquetteError):
        raise ClientError(f"{failed[0]} ({stored} other messages were sent)") from failed[0]
    if failed:
        raise failed[0]
    return count, empty


def _lines(path: str) -> Iterator[bytes]:
    """Lines as the bytes they are: a message need not be text."""
    if path == "-":
        if sys.stdin is None:
            raise ConfigError("standard input is closed: give messages as arguments or --file")
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\n")
        return
    try:
        yield from read_lines(path)
    except OSError as error:
        raise ConfigError(f"--file {path} cannot be read: {error.strerror}") from None


# `roquette consume`: a group's messages, or a look at a topic without any group.


Contains = Annotated[str, Flag("--contains TEXT", "Print only bodies with this text.")]


def consume(
    topic: str,
    *,
    group: Annotated[str | None, Flag("--group -g GROUP")] = None,
    offset: Annotated[str, Flag("--offset WHERE")] = "first",
    tags: Tags = "*",
    expression: Expression = "",
    contains: Contains = "",
    count: Annotated[int, Flag("--count -c", "Stop after so many messages; 0: never.", 0)] = 0,
    follow: Annotated[bool, Flag("--follow -f")] = False,
    as_json: Annotated[bool, Flag("--json")] = False,
    namesrv: NameServers = None,
    login: LoginFile = None,
    context: ContextName = None,
) -> None:
    """Print messages: bodies, or JSON lines with --json.

    Args:
        group: Consume as a member of this group, acknowledging; without it, only look.
        offset: first, last, 120, -10 (the last ten of each queue), +100, @-1h, @2026-09-01T10:00, or timestamp:MILLISECONDS.
        follow: Wait for new messages (always so with --group).
        as_json: One JSON object a line, with everything known of a message; a body that is not UTF-8 as body_base64.
    """

    place, chosen = place_of(namesrv, login, context), filter_of(tags, expression)
    wanted = {"tag": tags} if chosen.kind == "TAG" else {"filter": sql(expression)}

    async def run() -> int:
        printer = _Printer(as_json, count, contains.encode())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, printer.stop.set)
        async with client_of(place.name_servers, place.login) as client:
            if group is not None:
                await _as_member(client, topic, group, offset, wanted, printer)
            else:
                await _look(client, topic, offset, wanted, follow, printer)
        return printer.seen

    seen = asyncio.run(run())
    say(f"{counted(seen, 'message')}")


class _Printer:
    """Prints messages whose bodies have `part` in them until there are `count` (0: no end), or `stop` is set."""

    def __init__(self, as_json: bool, count: int, part: bytes) -> None:
        self._as_json = as_json
        self._part = part
        self._count = count
        self.seen = 0
        self.stop = asyncio.Event()

    def print(self, message: "ReceivedMessage") -> bool:
        """Print a message; False when enough have been printed."""
        if self.stop.is_set():
            return False
        if self._part not in message.body:
            return True
        line = as_json_line(message).encode() if self._as_json else message.body
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        self.seen += 1
        if self.seen == self._count:
            self.stop.set()
        return True


async def _as_member(
    client: "Client", topic: str, group: str, offset: str, wanted: dict[str, Any], printer: _Printer
) -> None:
    from roquette.client.consumer_options import StartFrom, StartPoint

    place = _place(offset)
    start: StartPoint = place.number
    if place[:2] in (("start", 0), ("end", 0)):
        start = StartFrom.FIRST if place.kind == "start" else StartFrom.LAST
    elif place.kind != "time":
        raise ConfigError(
            f"--offset {offset} does not go with --group: first, last and times (@-1h) do"
        )
    try:
        await client.queues(topic)
    except RouteNotFound:
        say(f"there is no topic {topic} yet: waiting for it")
    async with client.subscribe(
        topic, printer.print, group=group, start_from=start, concurrency=1, **wanted
    ):
        await printer.stop.wait()


async def _look(
    client: "Client",
    topic: str,
    offset: str,
    wanted: dict[str, Any],
    follow: bool,
    printer: _Printer,
) -> None:
    queues = await client.queues(topic)
    reader = client.reader(group=READER, **wanted)
    ends = {queue: await client.max_offset(queue) for queue in queues}
    for queue in queues:
        start = await _start(client, queue, offset, ends[queue])
        if follow or start < ends[queue]:
            reader.seek(queue, start)
    while not printer.stop.is_set():
        if not any(follow or reader.position(q) < ends[q] for q in reader.assigned()):
            break
        for message in await reader.poll(timeout=0.5):
            if follow or message.queue_offset < ends[message.queue]:
                printer.print(message)


async def _start(client: "Client", queue: "MessageQueue", offset: str, end: int) -> int:
    low = await client.min_offset(queue)
    place = _place(offset)
    if place.kind == "time":
        return await client.offset_by_time(queue, place.number)
    return place.at(low, end)


def _place(offset: str) -> "QueuePlace":
    """`timestamp:MILLISECONDS` is the older way to say `@MILLISECONDS`. Raises ConfigError."""
    from roquette.admin.seek import parse_place
    from roquette.base.clock import SystemClock

    return parse_place(offset.replace("timestamp:", "@", 1), SystemClock().now_ms())


def as_json_line(message: "ReceivedMessage") -> str:
    """Everything known of a message, as JSON."""
    return json.dumps(fields_of(message), ensure_ascii=False)


# `roquette msg tail` and `roquette dlq ls`: messages that are printed as they come.


def tail(
    topic: str,
    *,
    offset: Annotated[str, Flag("--offset PLACE")] = "last",
    tags: Tags = "*",
    expression: Expression = "",
    contains: Contains = "",
    count: Annotated[int, Flag("--count -c", "Stop after so many; 0: never.", 0)] = 0,
    namesrv: NameServers = None,
    login: LoginFile = None,
    context: ContextName = None,
) -> None:
    """Print messages as they come, one JSON object a line, until Ctrl-C. No group is needed, and none is moved.

    Args:
        offset: Where to begin: last, -10, @-5m, @2026-09-01T10:00 ...
    """
    place = {"namesrv": namesrv, "login": login, "context": context}
    given: dict[str, Any] = {"offset": offset, "tags": tags, "expression": expression}
    given |= {"contains": contains, "count": count, **place}
    consume(topic, follow=True, as_json=True, **given)
    say("")


class DeadRow(msgspec.Struct, frozen=True):
    """A group that has dead letters. `error`: which brokers do not tell."""

    group: str
    messages: int
    last_ms: int
    error: str = ""


def list_letters(
    cluster: Cluster,
    group: Annotated[str | None, Flag("GROUP", "Without it, all groups that have some.")] = None,
    *,
    before: BeforePlace = None,
    since: Since = None,
    most: ManyAtMost = 1_000,
    bodies: bool = False,
    seen: bool = False,
) -> None:
    """List a group's dead letters, the newest first, with the topic each was sent to; or the groups that have some.

    Args:
        bodies: One JSON object a line, with bodies.
        seen: Note that you have looked: the doctor tells later ones.
    """
    from roquette.base.clock import SystemClock

    moment = moment_of(since, SystemClock())
    if group is None:
        if bodies or seen or before:
            raise ConfigError(
                "--bodies, --seen and --before are about the dead letters of one group: say which"
            )
        _show_groups(cluster, moment, most)
        return
    place = parse_before(before, dlq_topic(group), SystemClock().now_ms())

    async def run() -> "NewestPage":
        async with cluster.client() as client:
            page = await client.session.run(letters_of(group, most, moment, place))
            if seen and not page.more:
                await client.session.run(note_seen(map(row_of, page.messages[::-1])))
            return page

    page = asyncio.run(run())
    if bodies:
        for message in page.messages:
            print(as_json_line(message))
    else:
        none = f"group {group} has no dead letters" + (" since then" if since else "")
        cluster.show([*map(row_of, page.messages)], empty=none)
    for words in page_words(page):
        say(words)
    if seen and page.more:
        say("not noted as seen: there are older ones that are not listed (--most)")


def _show_groups(cluster: Cluster, since: "datetime | None", most: int) -> None:
    from roquette.admin.catalogue import DEAD, topic_rows, topics

    names, more = cluster.run(topics()).page(limit=most, kind=DEAD)
    since_ms = 0.0 if since is None else since.timestamp() * 1000
    rows = [
        DeadRow(row.topic.removeprefix(DLQ_PREFIX), row.messages, row.last_ms, row.error)
        for row in cluster.run(topic_rows(names, most=None))
        if row.error or (row.messages > 0 and row.last_ms >= since_ms)
    ]
    cluster.show(rows, empty="no group has dead letters")
    if more:
        say(f"{more} more topics of dead letters: say --most for more")
