"""Stores that a former version left (tools/make_fixtures.py): unpacked, with the book of what they must serve."""

import json
import tarfile
from pathlib import Path
from typing import Any

from roquette_testing.faulty_files import FaultyFiles

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
KINDS = ("stopped", "killed", "young", "rolled")


def load_book(kind: str, commit: str = "1b94d96") -> dict[str, Any]:
    """What the store of this kind must serve."""
    book: dict[str, Any] = json.loads((FOLDER / commit / f"{kind}.json").read_text())
    return book


def load_files(kind: str, commit: str = "1b94d96") -> FaultyFiles:
    """The store in a file system in memory, under /store."""
    images: dict[str, bytes] = {}
    directories: list[str] = []
    with tarfile.open(FOLDER / commit / f"{kind}.tar.xz") as archive:
        for member in archive:
            if member.isdir():
                directories.append(f"/{member.name}")
            else:
                content = archive.extractfile(member)
                assert content is not None
                images[f"/{member.name}"] = content.read()
    return FaultyFiles.holding(images, directories)


def unpack(kind: str, target: Path, commit: str = "1b94d96") -> Path:
    """The store on a real disk; returns its directory."""
    with tarfile.open(FOLDER / commit / f"{kind}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target / "store"
