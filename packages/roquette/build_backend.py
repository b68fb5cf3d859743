"""setuptools' build backend, which asks for mypyc only where it is of use: PEP 517.

A wheel, and with it `pip install .`, has the compiled form wherever a C compiler is found. An editable install has not: `make
compile` makes it there, and knows when it is out of date.
"""

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - the hooks of PEP 517 and 660

ROOT = Path(__file__).resolve().parent


def wants_compiled() -> bool:
    """By ROQUETTE_COMPILE; without it, where a C compiler is found."""
    asked = os.environ.get("ROQUETTE_COMPILE")
    if asked is not None:
        return asked == "1"
    return has_compiler()


def has_compiler() -> bool:
    """Is a C compiler found?"""
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """mypyc, and what the compiled modules import: their types are part of the compiled form."""
    found: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if wants_compiled():
        own = tomllib.loads((ROOT / "pyproject.toml").read_text())
        found += [own["tool"]["roquette"]["compiler"], *own["project"]["dependencies"]]
    return found


def build_editable(*words: Any, **more: Any) -> str:
    """A checkout, interpreted."""
    os.environ.setdefault("ROQUETTE_COMPILE", "0")
    name: str = build_meta.build_editable(*words, **more)
    return name


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """setuptools' own."""
    os.environ.setdefault("ROQUETTE_COMPILE", "0")
    found: list[str] = build_meta.get_requires_for_build_editable(config_settings)
    return found


def prepare_metadata_for_build_editable(*words: Any, **more: Any) -> str:
    """Metadata need no compiler."""
    os.environ.setdefault("ROQUETTE_COMPILE", "0")
    name: str = build_meta.prepare_metadata_for_build_editable(*words, **more)
    return name
