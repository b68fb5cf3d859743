"""Frame of every server process around its service: a loop, signals, the ready line, the exit code."""

import asyncio
import gc
import logging
import os.path
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from roquette import __version__
from roquette.base.clock import SystemClock
from roquette.base.config import ForeignKeys, Sources, load, to_properties
from roquette.base.descriptors import SHORTAGE, raise_limit, shortage_words
from roquette.base.executor import new_loop, use_worker_threads
from roquette.base.files import OsFiles
from roquette.base.form import form
from roquette.base.javatypes import whole_number
from roquette.base.lifecycle import Tasks
from roquette.base.log_settings import LogSettings
from roquette.base.logs import RateLimited
from roquette.errors import ConfigError
from roquette.remoting.address import first_address
from roquette.remoting.certificates import (
    TlsSettings,
    certificate_ends,
    client_tls,
    server_tls,
)
from roquette.remoting.pem import own_hosts
from roquette.remoting.security import Security
from roquette.remoting.settings import DoorSettings, Protection

log = logging.getLogger("roquette.apps")

ANY_ADDRESS = {"", "0.0.0.0", "::"}

Body = Callable[[asyncio.Event], Awaitable[int]]


def run(body: Body) -> int:
    """Run a server until SIGTERM or SIGINT sets the event; returns the process's exit code.

    The loop is uvloop's where that is installed.
    """
    lack = raise_limit()
    if lack is not None:
        raise ConfigError(lack)
    log.info("roquette %s %s", __version__, form())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_with_signals(body))


async def _with_signals(body: Body) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell_shortage(RateLimited(log, SystemClock())))
    threads = use_worker_threads(loop)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        return await body(stop)
    finally:
        threads.close()


def tell_shortage(
    noise: RateLimited,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a loop's handler of errors that nobody else takes: connections that could not be accepted are told in words,
    now and then (asyncio's loop reports each attempt, uvloop's drops the connection in silence). What goes wrong
    in a callback is told with a brake as well, and the loop goes on."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, words = context.get("exception"), context.get("message")
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            noise.warning("short", "no connection accepted: %s", shortage_words(error))
        elif isinstance(error, MemoryError):
            noise.warning("memory", "memory is short where=%s", words)
        else:
            key = f"{words} {type(error).__name__}"
            noise.warning(key, "callback failed where=%s error=%r", words, error, error=error)

    return handle


def settle_memory() -> None:
    """After start: what exists now is not looked at by the collector again (23 -> 7 ms per pass)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def print_ready(*, namesrv: str | None = None, broker: str | None = None) -> None:
    """The one line on stdout that says a server accepts; scripts wait for it."""
    parts = [f"namesrv={namesrv}"] if namesrv else []
    parts += [f"broker={broker}"] if broker else []
    print("ready " + " ".join(parts), flush=True)


def sources_of(
    config_file: str | None, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> Sources:
    """All sources of a server's settings; raises ConfigError when the property file cannot be read."""
    sources = Sources(overrides=overrides, environ=environ)
    if config_file is None:
        return sources
    try:
        text = OsFiles().read_bytes(config_file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {config_file} cannot be read: {error}") from None
    return replace(sources, file_text=text, file_name=config_file)


def load_settings(
    classes: Iterable[type[Any]], foreign: ForeignKeys, sources: Sources
) -> list[Any]:
    """An instance of each config class; keys without effect are warned of. Raises ConfigError."""
    configs, warnings = load(classes, with_tls_file(sources), foreign)
    for warning in warnings:
        log.warning("%s", warning)
    return configs


def with_tls_file(sources: Sources) -> Sources:
    """With the properties file that tls.config.file names; Apache's default place may be empty.

    Raises:
        ConfigError: it cannot be read.
    """
    settings: TlsSettings = load((TlsSettings,), sources)[0][0]
    path, files = settings.config_file, OsFiles()
    if not path or (path == TlsSettings().config_file and not files.exists(path)):
        return sources
    try:
        text = files.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tls.config.file={path} cannot be read: {error}") from None
    return replace(sources, more_files={path: text})


def protection_of(
    tls: TlsSettings,
    directory: str,
    host: str,
    door: DoorSettings | None = None,
    log_settings: LogSettings | None = None,
) -> Protection:
    """Make the protection of a server's ports and calls from its settings. Raises ConfigError.

    Args:
        directory: a pair of our own is kept in its directory `tls`. host: that pair names it.
        log_settings: shown with the others to those who may ask.
    """
    clock = SystemClock()
    hosts = own_hosts() if host in ANY_ADDRESS else [*own_hosts(), host]
    place = os.path.join(os.path.expanduser(directory), "tls")
    return Protection(
        tls=server_tls(tls, place, hosts, clock),
        ends=certificate_ends(tls, place),
        calls=Security(tls=client_tls(tls, clock)),
        door=door,
        shown=to_properties(tls)
        | to_properties(door or DoorSettings())
        | to_properties(log_settings or LogSettings())
        | {"useTLS": "true" if tls.enable else "false"},
    )


def listen_settings(listen: str | None) -> dict[str, str]:
    """The settings that HOST:PORT of --listen stands for; port 0 takes a free one."""
    if listen is None:
        return {}
    host, _, port = listen.rpartition(":")
    if whole_number(port, 65_535) < 0:
        raise ConfigError(f"--listen {listen!r} is not of the form HOST:PORT")
    host = host.strip("[]") or "0.0.0.0"
    if not re.fullmatch(r"[\d.]+|.*:.*", host):  # a name
        try:
            host = asyncio.run(first_address(host))
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"--listen {listen!r}: {host} has no address: {error}") from None
    return {"bindAddress": host, "listenPort": port}


async def wait_end(stop: asyncio.Event, failed: Callable[[], Awaitable[str]]) -> str | None:
    """Wait for the signal, or for `failed`; returns why it failed, None when a signal came."""
    reasons: list[str] = []

    async def watch() -> None:
        reasons.append(await failed())
        stop.set()

    tasks = Tasks()
    tasks.start("watch-failure", watch())
    await stop.wait()
    await tasks.stop()
    return reasons[0] if reasons else None
