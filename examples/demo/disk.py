"""Where a demo writes, and whether brokers keep their messages there."""

import argparse
from pathlib import Path
from typing import Final

from examples.demo.servers import DemoError

from roquette.base.files import OsFiles
from roquette.store.format.config import StoreConfig
from roquette.store.upkeep.retention import DiskState

NEEDED: Final = 2 << 30  # bytes that a run writes, at most


def output_option(parser: argparse.ArgumentParser) -> None:
    """Let people say where everything goes."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="where everything goes (make: OUTPUT=DIR); default: demo-output",
    )


def check_disk(directory: Path, command: str) -> None:
    """Look at the disk of a directory before anything starts there; `command` is what people would type again.

    Raises:
        DemoError: brokers would delete messages that nobody has read yet, as they do on full disks, and it is the demo
            that would seem to be wrong.
    """
    directory.mkdir(parents=True, exist_ok=True)
    total, free = OsFiles().disk_usage(str(directory))
    config = StoreConfig(root_dir=str(directory))
    if not DiskState(str(directory), total, free - NEEDED).is_cleaned_forcibly(config):
        return
    percent, least = config.forcibly_percent, config.disk_clean_forcibly_free
    wanted = NEEDED + min(least, total * (100 - percent) // 100) - free
    raise DemoError(
        f"nothing was started: the disk of {directory.absolute()} is {100 * (total - free) / total:.1f} % full "
        f"({free >> 20:,} of {total >> 20:,} MiB free). Above {percent} % (diskSpaceCleanForciblyRatio) with less than "
        f"{least >> 30} GiB free (diskCleanForciblyFreeBytes) brokers delete their oldest messages, read or not. Free "
        f"{(wanted >> 20) + 1:,} MiB on that disk, or let the demo write to another one: {command}"
    )
