"""`roquette user create`, `user update` and `acl import`: who may sign requests. A password is never an argument: lists of
processes show those."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from roquette.admin.access import (
    OfCluster,
    not_done,
    put_rules,
    report_of,
    rows_of,
    save_user,
    would,
)
from roquette.admin.command import SAY_WHAT, Flag, OperationReport, Printed
from roquette.base.options import counted
from roquette.cli.commands import show_report
from roquette.cli.connect import Cluster
from roquette.cli.output import say
from roquette.errors import ConfigError

DryRun = Annotated[bool, Flag("--dry-run", SAY_WHAT)]
PasswordFile = Annotated[
    str | None,
    Flag(
        "--password-file FILE",
        "Its first line is the password (the secret key); - is standard input.",
    ),
]
Generate = Annotated[bool, Flag("--generate", "Make a password, and print it this once.")]
MOST_PASSWORD = 1024  # characters


def create(
    where: Cluster,
    name: str,
    *,
    password_file: PasswordFile = None,
    generate: Generate = False,
    super_user: Annotated[bool, Flag("--super")] = False,
    disabled: bool = False,
    cluster: OfCluster = None,
    dry_run: DryRun = False,
) -> None:
    """Create a user on every broker and name server; it may do nothing until `roquette acl allow`.

    The password comes from a prompt, --password-file or --generate.

    Args:
        super_user: May do everything: no rule is asked.
        disabled: Refuse it until it is enabled.
    """
    password = None if dry_run else read_password(password_file, generate, needed=True)
    kind, status = "Super" if super_user else "Normal", "disable" if disabled else "enable"
    change = {"password": password, "user_type": kind, "user_status": status, "cluster": cluster}
    _save(where, name, change, generate, create=True, dry_run=dry_run)


def update(
    where: Cluster,
    name: str,
    *,
    password_file: PasswordFile = None,
    generate: Generate = False,
    prompt: bool = False,
    super_user: Annotated[bool | None, Flag("--super/--normal")] = None,
    enabled: Annotated[bool | None, Flag("--enable/--disable")] = None,
    cluster: OfCluster = None,
    dry_run: DryRun = False,
) -> None:
    """Change a user's password, type or status; what is not given stays.

    Args:
        prompt: Ask for a new password on this terminal.
        super_user: May do everything, or what rules allow.
        enabled: Let it in, or refuse it.
    """
    wanted = prompt or generate or password_file is not None
    if not wanted and super_user is None and enabled is None:
        raise ConfigError("nothing to change: see: roquette user update --help")
    password = None if dry_run else read_password(password_file, generate, needed=wanted)
    kind = None if super_user is None else "Super" if super_user else "Normal"
    status = None if enabled is None else "enable" if enabled else "disable"
    change = {"password": password, "user_type": kind, "user_status": status, "cluster": cluster}
    _save(where, name, change, generate, create=False, dry_run=dry_run)


def prove(where: Cluster) -> None:
    """Tell whether the cluster takes your name and secret (--login). Exit code 10 when it does not, or takes anybody's."""
    from roquette.admin.who import is_open
    from roquette.admin.who import prove as is_proven

    async def run() -> str:
        if await is_open(lambda wrong: where.client(credentials=wrong)):
            return "open"
        async with where.client() as client:
            return "proven" if await is_proven(client) else "refused"

    found = asyncio.run(run())
    words = {
        "open": "the name servers take any name and secret",
        "proven": "the name servers take your name and secret",
        "refused": "the name servers do not take your name and secret",
    }
    report = OperationReport({"result": found}, [words[found]], healthy=found == "proven")
    show_report(where, report)


def _save(
    where: Cluster,
    name: str,
    change: dict[str, Any],
    generated: bool,
    *,
    create: bool,
    dry_run: bool,
) -> None:
    """Make a change of `save_user`; a password that was generated is shown, when one server at least has it."""
    deed, servers = f"{'create' if create else 'change'} user {name}", where.addresses()
    if dry_run:
        where.show(where.run(would(servers, change["cluster"], f"would {deed}")))
        return
    told = where.run(save_user(name, servers, create=create, **change))
    taken = generated and any(not (one.error or one.unserved) for one in told)
    more = {"password": change["password"]} if taken else {}
    report = report_of(told, deed, user=name, **more)
    if taken:
        shown = [*(report.shown or ()), "its password, shown this once:"]
        report = msgspec.structs.replace(report, shown=[*shown, Printed(change["password"])])
    show_report(where, report)


def import_accounts(
    where: Cluster,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="plain_acl.yml, and files beside it.",
            exists=True,
            dir_okay=False,
        ),
    ],
    *,
    cluster: OfCluster = None,
    dry_run: DryRun = False,
) -> None:
    """Make users and rules of the accounts of ACL 1.0: roquette acl import conf/plain_acl.yml

    An admin becomes a super user. White lists have no like: who relied on one needs a user.
    """
    from roquette.access.records import read_accounts

    found = read_accounts([(str(path), path.read_bytes()) for path in files])
    for note in found.notes:
        say(note)
    rules, servers = {acl.username: rows_of(acl) for acl in found.acls}, where.addresses()
    for user in found.users:
        rows = rules.get(user.username, [])
        deed = f"user {user.username} ({user.user_type.value}) with {counted(len(rows), 'rule')}"
        if dry_run:
            where.show(where.run(would(servers, cluster, f"would make {deed}")))
            continue
        told = where.run(
            save_user(
                user.username,
                servers,
                create=True,
                password=user.password,
                user_type=user.user_type.value,
                cluster=cluster,
            )
        )
        if rows and not not_done(told, deed):
            told = where.run(put_rules(rows, servers, cluster=cluster))
        show_report(where, report_of(told, deed, user=user.username, rules=rows))


def read_password(file: str | None, generate: bool, *, needed: bool) -> str | None:
    """The password from where the options say; None when it is not needed.

    Raises:
        ConfigError: both options are given, none is and there is no terminal to ask on, or it cannot be used.
    """
    if file is not None and generate:
        raise ConfigError("give --password-file or --generate, not both")
    if generate:
        from roquette.base.entropy import secret_text

        return secret_text()
    if file is None and not needed:
        return None
    password = _given_password(file)
    if not password:
        raise ConfigError("the password is empty")
    if len(password) > MOST_PASSWORD:
        raise ConfigError(f"the password has more than {MOST_PASSWORD} characters")
    return password


def _given_password(file: str | None) -> str:
    from roquette.base.files import read_lines

    if file is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                "no terminal to ask for a password: give --password-file FILE (- is standard input) or --generate"
            )
        entered: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return entered
    if file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        return next(iter(read_lines(file)), b"").decode().rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the password file {file} cannot be read: {error}") from None
