"""The packages of this workspace: one version, one lock, one tag."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("roquette", "roquette-spark", "roquette-testing")
FOLDERS = {name: ROOT / "packages" / name for name in PACKAGES}
SOURCES = {name: folder / "src" for name, folder in FOLDERS.items()}
"""Package -> the folder that Python's path gets."""
PRODUCT = SOURCES["roquette"] / "roquette"
SPARK = SOURCES["roquette-spark"] / "roquette_spark"


def python_path(root: Path = ROOT) -> str:
    """PYTHONPATH of a checkout: of this one, or of one below `root`, which may be older than its packages."""
    folders = [root / path.relative_to(ROOT) for path in SOURCES.values()]
    return ":".join(str(path) for path in folders if path.is_dir()) or str(root / "src")


def rooms(names: Iterable[str]) -> list[tuple[Path, Path]]:
    """Where names of files begin, and the folder of each room of the product; and Spark's workers, which talk to servers, too."""
    product = [(PRODUCT, PRODUCT / name) for name in names]
    return [*product, (SOURCES["roquette-spark"], SPARK / "workers")]


def project_of(package: str) -> dict[str, Any]:
    """The whole pyproject.toml of a package."""
    return tomllib.loads((FOLDERS[package] / "pyproject.toml").read_text())


def requirements(
    packages: tuple[str, ...], extras: tuple[str, ...], groups: tuple[str, ...]
) -> list[str]:
    """What packages want of others, with these of their extras, and what these of the workspace's groups are."""
    found: list[str] = []
    for package in packages:
        project = project_of(package)["project"]
        found += project["dependencies"]
        for extra in extras:
            found += project.get("optional-dependencies", {}).get(extra, ())
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for group in groups:
        found += workspace[group]
    return [
        word for word in dict.fromkeys(found) if re.split(r"[\[=<> ;]", word)[0] not in PACKAGES
    ]
