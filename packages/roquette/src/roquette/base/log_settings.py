"""Log set-up for our processes."""

import logging
import sys
from dataclasses import dataclass
from typing import TextIO

from roquette.base.config import Sources, load
from roquette.base.logs import JsonFormatter, LineFormatter
from roquette.base.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of a server's log. No request changes one."""

    log_format: str = option(
        "text",
        "Lines on stderr: text for people, or json, one object a line with time, level, logger, message and its fields.",
        choices=("text", "json"),
    )
    log_level: str = option(
        "INFO",
        "The least that is logged.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    )


def begin_log(sources: Sources) -> None:
    """Log as settings say, before anything else is said. Raises ConfigError."""
    configure(load((LogSettings,), sources)[0][0])


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send everything under `roquette`, and what asyncio says, to `stream` (stderr)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else LineFormatter())
    for name in ("roquette", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("roquette").setLevel(settings.log_level)
    logging.raiseExceptions = False  # a line that cannot be written is no reason for a traceback


def leave_log() -> None:
    """Undo `configure`: what is imported next may say how the process logs."""
    for name in ("roquette", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("roquette").setLevel(logging.NOTSET)
    logging.raiseExceptions = True
