"""`roquette bundle`: what our commands say of a cluster, in one file."""

import asyncio
import contextlib
import io
import platform
import shlex
import tarfile
from collections import deque
from typing import Annotated, Any, Final

import typer

from roquette import __version__
from roquette.admin.command import Flag
from roquette.base.form import form
from roquette.cli.connect import Cluster
from roquette.cli.output import say
from roquette.errors import RoquetteError

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
    for command in COMMANDS.split(";"):
        words = shlex.split(cluster.typed(f"`roquette {command}`").strip("`"))[1:]
        texts[f"{command.replace(' ', '-')}.json"] = _said(line.find_root().command, words)
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


def _said(root: Any, words: list[str]) -> str:
    """What a command of ours prints for programs, or why it does not."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            root.main([*words, "-o", "json"], prog_name="roquette", standalone_mode=False)
    except RoquetteError as error:
        return f"{out.getvalue()}error: {error}"
    return out.getvalue()
