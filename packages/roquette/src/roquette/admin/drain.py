"""Empty a broker without loss, and give it its work back.

A drain goes in steps that clients of any version follow by themselves: name servers tell producers not to send to
the broker (its write permission is wiped), after the time in which every client has asked for its routes again the
broker refuses sends itself (brokerPermission), and then groups read what is left. What was before stands in the
name servers' key-value configuration, so that whoever restores needs to know nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec

from roquette.admin.catalogue import OWN, kind_of
from roquette.admin.cluster import (
    Left,
    LeftRow,
    cluster_info,
    left_in,
    look_at,
    masters_of,
    require_one,
    system_names,
)
from roquette.admin.command import Flag, IgnoredGroups, OperationReport, Settle, Timeout, command
from roquette.client import calls, operator_calls
from roquette.client.calls import ANY_NAME_SERVER, Operation, ask, ask_all
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.names import PERM_WRITE, perm_text
from roquette.wire.bodies import TopicRouteData
from roquette.wire.codes import DRAIN_NOTES

T = TypeVar("T")

SETTLE_S: Final = 35.0
"""Clients of Apache's ask for their routes every 30 s."""

LOOK_S: Final = 1.0
_PERMISSION: Final = "brokerPermission"


OneBroker = Annotated[str, Flag("BROKER")]


ShowRows = Callable[[Sequence[msgspec.Struct]], None]
"""Gets rows of a change that goes on, as they are at each look: what is left, or what is proven."""


def unseen(rows: Sequence[msgspec.Struct]) -> None:
    """Nobody looks before the end."""


class Run(Protocol):
    """Runs operations: `Session.run`."""

    def __call__(self, operation: Operation[T], /) -> Awaitable[T]:
        """Return or raise what the operation finds."""
        ...


class Pace(msgspec.Struct, frozen=True):
    """Pace of a change that waits, and how it is driven.

    Attributes:
        pause: waits so many seconds (asyncio.sleep).
        now: seconds of a clock that only goes forward.
        tell: gets a sentence whenever there is something new.
        settle_s: what clients need to hear of other routes.
        timeout_s: after which what is left is returned as it is.
        look_s: between two looks at what is left.
        show: gets the rows of each look.
    """

    pause: Callable[[float], Awaitable[Any]]
    now: Callable[[], float]
    tell: Callable[[str], None]
    settle_s: float = SETTLE_S
    timeout_s: float = 3600.0
    look_s: float = LOOK_S
    show: ShowRows = unseen


class Note(msgspec.Struct, frozen=True):
    """Note of what a drain changed: the broker's permission before it."""

    permission: int


def alone_on(broker: str) -> Operation[list[str]]:
    """Topics that clients can send to on this broker only; retry topics, dead letters and the system's left out."""
    topics = yield from _writable_topics(broker)
    answers = yield from ask_all((ANY_NAME_SERVER, calls.route(topic)) for topic in topics)
    found: list[str] = []
    for topic, answer in zip(topics, answers, strict=True):
        if not isinstance(answer.error, RouteNotFound) and not _others(answer.get(), broker):
            found.append(topic)
    return found


def _writable_topics(broker: str) -> Operation[list[str]]:
    ((_, address),) = yield from masters_of(broker=broker)
    configs = yield from ask(address, operator_calls.topic_configs())
    own = system_names((yield from cluster_info()))
    return [
        name
        for name, config in sorted(configs.items())
        if config.perm & PERM_WRITE and kind_of(name, own) == OWN
    ]


def still_shown(name_servers: Sequence[str], broker: str) -> Operation[list[str]]:
    """Topics of which a name server still tells clients that they can send to the broker.

    A broker that registers anew, as after a restart, shows itself again.
    """
    topics = yield from _writable_topics(broker)
    asks = [(address, topic) for address in name_servers for topic in topics]
    answers = yield from ask_all((address, calls.route(topic)) for address, topic in asks)
    shown: set[str] = set()
    for (_, topic), answer in zip(asks, answers, strict=True):
        route = None if isinstance(answer.error, RouteNotFound) else answer.get()
        if route is not None and any(
            data.broker_name == broker and data.perm & PERM_WRITE for data in route.queue_datas
        ):
            shown.add(topic)
    return sorted(shown)


def _others(route: TopicRouteData, broker: str) -> bool:
    """Return True when clients can send to another broker, whose master is there."""
    masters = {data.broker_name for data in route.broker_datas if 0 in data.broker_addrs}
    return any(
        data.broker_name in masters and data.broker_name != broker and data.perm & PERM_WRITE
        for data in route.queue_datas
    )


def noted(broker: str) -> Operation[Note | None]:
    """Return what was before the drain that goes on or is done; None: there is none."""
    text = yield from ask(ANY_NAME_SERVER, calls.get_config(DRAIN_NOTES, broker))
    if not text:
        return None
    try:
        return Note(int(json.loads(text)["permission"]))
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"the name servers' note {DRAIN_NOTES}/{broker} is not readable: {text!r}; delete it with mqadmin deleteKvConfig"
        ) from None


def hide(name_servers: Sequence[str], broker: str, *, alone: bool = False) -> Operation[Note]:
    """The first step: note what is, and have every name server tell clients not to send to the broker.

    Args:
        alone: also when the broker is the only one of a topic.

    Raises:
        ConfigError: no such broker, or topics that are on it alone.
        ClientError: a name server does not answer: clients of it would go on sending.
    """
    ((_, address),) = yield from masters_of(broker=broker)
    note = yield from noted(broker)
    # A note that is there is of a drain that was cut off: the permission of now is not the one of before it.
    if note is None:
        if not alone and (topics := (yield from alone_on(broker))):
            raise ConfigError(
                f"{', '.join(topics[:10])} {'is' if len(topics) == 1 else 'are'} on {broker} alone, and nobody could send: "
                f"create {'it' if len(topics) == 1 else 'them'} on another broker, or say --force"
            )
        settings = yield from ask(address, operator_calls.broker_settings())
        note = Note(int(settings.get(_PERMISSION, "6")))
        text = json.dumps(msgspec.to_builtins(note))
        # The note goes first: whatever is cut off behind it, `restore` knows what was before.
        yield from _at_all(name_servers, calls.put_config(DRAIN_NOTES, broker, text))
    yield from _at_all(name_servers, operator_calls.wipe_write_permission(broker))
    return note


def _at_all(name_servers: Sequence[str], call: calls.Call[Any]) -> Operation[None]:
    for answer in (yield from ask_all((address, call) for address in name_servers)):
        if answer.error is not None:
            raise ClientError(
                f"name server {answer.address} does not answer, and its clients would not hear of the change: {answer.reason}"
            )


def close(broker: str, note: Note) -> Operation[None]:
    """The second step: the broker itself refuses sends."""
    yield from _permit(broker, note.permission & ~PERM_WRITE)


def keep_closed(name_servers: Sequence[str], broker: str, note: Note) -> Operation[None]:
    """Close the broker again when it has started anew meanwhile: its permission is then that of its file."""
    ((_, address),) = yield from masters_of(broker=broker)
    settings = yield from ask(address, operator_calls.broker_settings())
    if int(settings.get(_PERMISSION, "0")) & PERM_WRITE:
        yield from _at_all(name_servers, operator_calls.wipe_write_permission(broker))
        yield from close(broker, note)


def _permit(broker: str, permission: int) -> Operation[None]:
    ((_, address),) = yield from masters_of(broker=broker)
    changes = {_PERMISSION: str(permission)}
    yield from ask(address, operator_calls.change_broker_settings(changes))


def left_on(broker: str, ignored: Collection[str] = ()) -> Operation[Left]:
    """Return what the broker still has to deliver; raises ClientError when it does not answer."""
    ((_, address),) = yield from masters_of(broker=broker)
    return left_in((yield from look_at(address)), ignored)


def _restored(note: Note, name: str) -> OperationReport[None]:
    permission = perm_text(note.permission)
    return OperationReport(
        notes=[f"{name} has its permission {permission} again; clients come within 30 s"]
    )


@command(shows=_restored)
def restore(name_servers: Sequence[str], name: OneBroker) -> Operation[Note]:
    """Give a drained broker back the permissions it had: clients send to it again.

    Raises:
        ConfigError: it is not drained. ClientError: it, or a name server, does not answer.
    """
    note = yield from noted(name)
    if note is None:
        raise ConfigError(
            f"broker {name} is not drained: no name server has a note of it ({DRAIN_NOTES})"
        )
    # The note goes last: cut off before that, `restore` can be called again.
    yield from _permit(name, note.permission)
    answers = yield from ask_all(
        (address, operator_calls.delete_config(DRAIN_NOTES, name)) for address in name_servers
    )
    require_one(answers)
    return note


def _left(left: Left, name: str, wait: bool, **_: object) -> OperationReport[list[LeftRow]]:
    return OperationReport(
        [*left.rows, *left.stays],
        notes=left.unknown,
        empty=f"{name} has nothing left for anybody",
        healthy=not (wait and left.rows),
    )


@command(asks="have clients send nothing to {name} any more", shows=_left)
async def drain_broker(
    run: Run,
    name_servers: Sequence[str],
    tell: Callable[[str], None],
    name: OneBroker,
    *,
    wait: bool = False,
    settle: Settle = SETTLE_S,
    timeout: Timeout = 3600.0,
    ignore_group: IgnoredGroups = None,
    force: bool = False,
    show: ShowRows = unseen,
) -> Left:
    """Empty a broker without loss: clients stop to send to it, and groups read what it has.

    Exit code 10 when --wait ends with something left. `broker restore` gives everything back.

    Args:
        wait: Until everything is consumed; else only the first step.
        force: Also with topics that are on this broker alone.
    """
    ignored = ignore_group or []
    if not wait:
        await run(hide(name_servers, name, alone=force))
        return await run(left_on(name, ignored))
    now = asyncio.get_running_loop().time
    pace = Pace(asyncio.sleep, now, tell, settle, timeout, show=show)
    return await drain(run, name_servers, name, pace, alone=force, ignored=ignored)


async def drain(
    run: Run,
    name_servers: Sequence[str],
    broker: str,
    pace: Pace,
    *,
    alone: bool = False,
    ignored: Collection[str] = (),
) -> Left:
    """Empty a broker: nothing is lost, and no client sees an error. Can be ended and begun again at any point.

    Returns:
        What is left: no `rows` when it is empty, else what was there when `pace.timeout_s` was over.

    Raises:
        ConfigError, ClientError: as `hide` and `left_on`.
    """
    end_s = pace.now() + pace.timeout_s
    note = await run(hide(name_servers, broker, alone=alone))
    pace.tell(
        f"name servers tell clients not to send to {broker}; they hear of it in {pace.settle_s:.0f} s"
    )
    await pace.pause(pace.settle_s)
    while shown := await run(still_shown(name_servers, broker)):
        pace.tell(f"{broker} has registered again; hiding {len(shown)} topics once more")
        await run(hide(name_servers, broker, alone=alone))
        await pace.pause(pace.settle_s)
    # Refused only now: a producer with an older route would get an error.
    await run(close(broker, note))
    pace.tell(f"{broker} refuses sends; waiting until what it has is consumed")
    told = ""
    while True:
        await run(keep_closed(name_servers, broker, note))
        left = await run(left_on(broker, ignored))
        pace.show(left.rows)
        if (text := in_short(left)) != told:
            told = text
            pace.tell(text)
        if not left.rows or pace.now() >= end_s:
            return left
        await pace.pause(pace.look_s)


def in_short(left: Left) -> str:
    """The sums of what is left, in one line."""
    sums: dict[str, int] = {}
    for row in left.rows:
        what = f"{row.kind} of {row.group}" if row.group else row.kind
        sums[what] = sums.get(what, 0) + row.count
    return "left: " + (", ".join(f"{count} {what}" for what, count in sums.items()) or "nothing")
