"""`roquette user ...`: who may sign requests. A password is never an argument: lists of processes show those."""

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm, listing_verb
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from roquette.admin.access import Told, UserRow

app = typer.Typer(help="Create, change, list and delete users.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="CLUSTER", help="Only this cluster's brokers, and name servers."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done where, and do nothing.")
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Its first line is the password (the secret key); - is standard input.",
    ),
]
Generate = Annotated[
    bool, typer.Option("--generate", help="Make a password, and print it this once.")
]
MOST_PASSWORD = 1024  # characters


class ServerRow(msgspec.Struct, frozen=True):
    """What one server did."""

    server: str
    address: str
    result: str


@app.command("create")
@cluster_verb
def create_command(
    where: Cluster,
    name: Name,
    password_file: PasswordFile = None,
    generate: Generate = False,
    super_user: Annotated[
        bool, typer.Option("--super", help="May do everything: no rule is asked.")
    ] = False,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Refuse it until it is enabled.")
    ] = False,
    cluster: ClusterName = None,
    dry_run: DryRun = False,
) -> None:
    """Create a user on every broker and name server; it may do nothing until `roquette acl allow`.

    The password comes from a prompt, --password-file or --generate.
    """
    change = _Change(
        password=None if dry_run else read_password(password_file, generate, needed=True),
        user_type="Super" if super_user else "Normal",
        user_status="disable" if disabled else "enable",
        generated=generate,
    )
    _save(where, name, change, cluster, create=True, dry_run=dry_run)


@app.command("update")
@cluster_verb
def update_command(
    where: Cluster,
    name: Name,
    password_file: PasswordFile = None,
    generate: Generate = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Ask for a new password on this terminal.")
    ] = False,
    super_user: Annotated[
        bool | None,
        typer.Option("--super/--normal", help="May do everything, or what rules allow."),
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Let it in, or refuse it.")
    ] = None,
    cluster: ClusterName = None,
    dry_run: DryRun = False,
) -> None:
    """Change a user's password, type or status; what is not given stays."""
    wanted = prompt or generate or password_file is not None
    if not wanted and super_user is None and enabled is None:
        raise ConfigError("nothing to change: see: roquette user update --help")
    change = _Change(
        password=None if dry_run else read_password(password_file, generate, needed=wanted),
        user_type=None if super_user is None else ("Super" if super_user else "Normal"),
        user_status=None if enabled is None else ("enable" if enabled else "disable"),
        generated=generate,
    )
    _save(where, name, change, cluster, create=False, dry_run=dry_run)


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a user; None stays as it is. generated: we made the password, and show it."""

    password: str | None
    user_type: str | None
    user_status: str | None
    generated: bool


def _save(
    where: Cluster, name: str, change: _Change, cluster: str | None, *, create: bool, dry_run: bool
) -> None:
    from roquette.admin.access import save_user

    deed = f"{'create' if create else 'change'} user {name}"
    if dry_run:
        show_plan(where, cluster, deed)
        return
    told = where.run(
        save_user(
            name,
            where.addresses(),
            create=create,
            password=change.password,
            user_type=change.user_type,
            user_status=change.user_status,
            cluster=cluster,
        )
    )
    result: dict[str, object] = {"user": name}
    taken = change.generated and any(not (one.error or one.unserved) for one in told)
    if taken:
        result["password"] = change.password
    show_told(where, told, deed, result)
    if taken and not where.for_programs:
        say("its password, shown this once:")
        print(change.password)
    require_all(told, deed)


@app.command("delete")
@cluster_verb
def delete_command(
    where: Cluster,
    name: Name,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete a user and its rules; its requests are refused from then on."""
    from roquette.admin.access import delete_user

    deed = f"delete user {name} and its rules"
    if dry_run:
        show_plan(where, cluster, deed)
        return
    confirm(deed, yes)
    told = where.run(delete_user(name, where.addresses(), cluster=cluster))
    show_told(where, told, deed, {"user": name})
    require_all(told, deed)


@app.command("ls")
@listing_verb
def list_command(
    where: Cluster,
    part: Annotated[str, typer.Argument(metavar="PART", help="Only names with this in them.")] = "",
    cluster: ClusterName = None,
) -> None:
    """List users, and which servers have them otherwise; no password is shown, by anything."""
    where.show(_users(where, part, cluster), empty="no users yet: 'roquette user create NAME'")


@app.command("show")
@listing_verb
def show_command(where: Cluster, name: Name, cluster: ClusterName = None) -> None:
    """Show a user and what it may do."""
    from roquette.admin.access import list_acls

    users = [row for row in _users(where, name, cluster) if row.username == name]
    if not users:
        raise ClientError(f"user {name} does not exist: 'roquette user ls' shows those that do")
    subject = f"User:{name}"
    rules = [
        row
        for row in where.run(list_acls(where.addresses(), subject, cluster=cluster))
        if row.subject == subject
    ]
    if where.for_programs:
        where.show_value({"users": users, "rules": rules})
        return
    where.show(users)
    say("")
    everything = all(row.user_type == "Super" for row in users)
    where.show(rules, empty="a super user: may do everything" if everything else "may do nothing")


def _users(where: Cluster, part: str, cluster: str | None) -> "list[UserRow]":
    from roquette.admin.access import list_users

    return where.run(list_users(where.addresses(), part, cluster=cluster))


# What the verbs about users and rules share


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


def show_plan(where: Cluster, cluster: str | None, deed: str, result: str = "") -> None:
    """What --dry-run answers: which servers would be told what."""
    from roquette.admin.access import keepers

    rows = [
        ServerRow(keeper.name or "name server", keeper.address, result or f"would {deed}")
        for keeper in where.run(keepers(where.addresses(), cluster))
    ]
    where.show(rows)


def show_told(where: Cluster, told: "list[Told]", deed: str, result: dict[str, object]) -> None:
    """What each server did: a line for people when all went well, else a table."""
    rows = [
        ServerRow(
            one.broker or "name server",
            one.address,
            one.error or ("keeps no users" if one.unserved else "done"),
        )
        for one in told
    ]
    if where.for_programs:
        where.show_value({**result, "servers": rows})
    elif any(one.error or one.unserved for one in told):
        where.show(rows)
    else:
        say(f"{deed}: done on {', '.join(dict.fromkeys(row.server for row in rows))}")


def require_all(told: "list[Told]", deed: str) -> None:
    """Raise ClientError, for exit code 1, when a server did not do it, or none keeps users."""
    failed = [
        f"{one.broker or 'name server'} {one.address}: {one.error}" for one in told if one.error
    ]
    if failed:
        raise ClientError(f"{deed}: not done on {'; '.join(failed)}")
    if all(one.unserved for one in told):
        raise ClientError(f"{deed}: no server here keeps users")
