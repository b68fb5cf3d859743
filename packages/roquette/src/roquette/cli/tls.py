"""`roquette tls init`: a certificate authority with a pair for servers and one for clients."""

import os
from typing import Annotated

from roquette.admin.command import Flag
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output, say, show_value
from roquette.errors import ConfigError

LEAST_DAYS, MOST_DAYS = 1, 3650


def init(
    directory: Annotated[
        str, Flag("DIR", "Where the files go; nothing there is replaced.")
    ] = "tls",
    *,
    host: Annotated[list[str] | None, Flag("--host NAME")] = None,
    days: Annotated[int, Flag(least=LEAST_DAYS, most=MOST_DAYS)] = 825,
    dry_run: bool = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make an authority, a pair for servers and one for clients, and say which settings name them.

    Servers, and clients of servers that ask for certificates, need their pair; everybody needs ca.pem, and nobody ca.key:
    keep it somewhere else, it makes certificates that all will trust.

    Args:
        host: A name or address under which clients reach a server (what routes and name server lists say); may be repeated.
            Default: this machine's names and addresses.
        days: How long certificates are valid.
        dry_run: Say what would be made, and make nothing.
    """
    from roquette.admin.authority import own_hosts

    hosts = host or own_hosts()
    directory = os.path.abspath(directory)
    if not directory.isprintable():
        raise ConfigError(f"files of settings cannot name the directory {directory!r}")
    if not dry_run:
        make_files(directory, hosts, days)
    if output is not Output.TABLE:
        made = {"directory": directory, "hosts": hosts, "days": days, "made": not dry_run}
        show_value(
            made | {"server": server_settings(directory), "client": client_settings(directory)},
            output,
        )
        return
    say(f"{'would make' if dry_run else 'made'} in {directory}, valid for {days} days:")
    say("  ca.pem, ca.key            the authority; ca.key belongs on no server")
    say(f"  server.pem, server.key    for {', '.join(hosts)}")
    say("  client.pem, client.key    for clients, where servers ask for a certificate")
    say("\nservers (name server and broker, in the file of -c):\n")
    _print_settings(server_settings(directory))
    say("\nclients of Apache (the file that tls.config.file names, and tls.enable=true):\n")
    _print_settings(client_settings(directory))
    say("\nthe next steps: docs/howto/closed-cluster.md")


def make_files(directory: str, hosts: list[str], days: int) -> None:
    """Write the six files; keys are readable by their owner alone.

    Raises:
        ConfigError: one of them is there already or a host is none. OSError.
    """
    from roquette.admin.authority import Authority
    from roquette.base.clock import SystemClock
    from roquette.base.files import OsFiles, write_private

    authority = Authority("roquette authority", SystemClock().now_ms(), days)
    pairs = {
        "ca": authority.pem,
        "server": authority.server(hosts),
        "client": authority.client("roquette client"),
    }
    made = {
        f"{name}.{'pem' if part == 'cert' else 'key'}": data
        for name, pair in pairs.items()
        for part, data in pair.items()
    }
    os.makedirs(directory, exist_ok=True)
    there = [name for name in made if os.path.exists(os.path.join(directory, name))]
    if there:
        raise ConfigError(
            f"{directory} has {', '.join(there)} already, and others may trust what is there: "
            "give another directory, or move these away"
        )
    for name, data in made.items():
        path = os.path.join(directory, name)
        if name.endswith(".key"):
            write_private(path, data)
        else:
            OsFiles().write_atomic(path, data, keep_backup=False)


def server_settings(directory: str) -> dict[str, str]:
    """Return what a server sets: it encrypts what comes encrypted, and asks other servers by TLS."""
    return {
        "tls.server.mode": "permissive",
        "tls.server.certPath": os.path.join(directory, "server.pem"),
        "tls.server.keyPath": os.path.join(directory, "server.key"),
        "tls.server.trustCertPath": os.path.join(directory, "ca.pem"),
    }


def client_settings(directory: str) -> dict[str, str]:
    """Return what a client sets."""
    return {
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": os.path.join(directory, "ca.pem"),
        "tls.client.certPath": os.path.join(directory, "client.pem"),
        "tls.client.keyPath": os.path.join(directory, "client.key"),
    }


def _print_settings(settings: dict[str, str]) -> None:
    for key, value in settings.items():
        print(f"{key}={value}")
