"""Kinds of damage, by the fields of a file: what the tests of damage do to stores that are not open."""

import random
from collections.abc import Callable
from dataclasses import dataclass

KINDS = ("zeros", "ones", "low bit", "middle bit", "high bit", "swap")
WHOLE = ("empty", "half", "deleted", "zeroed")


@dataclass(frozen=True)
class Field:
    """Some bytes of a file; with a `step` one of many places.

    Attributes:
        path: of the file, or the beginning of the paths of several.
        at: from the file's start, or the unit's. `first`: where units begin.
    """

    name: str
    path: str
    at: int
    size: int
    step: int = 0
    first: int = 0


def places_of(data: bytes, field: Field, alive: Callable[[bytes], bool] = any) -> list[int]:
    """Where a field stands: in units that hold anything, if there are several."""
    if not field.step:
        return [field.at]
    starts = range(field.first, len(data) - field.step + 1, field.step)
    return [at + field.at for at in starts if alive(data[at : at + field.step])]


def damage(
    files: dict[str, bytes],
    field: Field,
    kind: str,
    rng: random.Random,
    alive: Callable[[bytes], bool] = any,
) -> dict[str, bytes] | None:
    """The files with one of a field's places damaged; None when that changes nothing. `alive`: is a unit of use?"""
    found = [
        (path, places)
        for path in sorted(files)
        if path.startswith(field.path)
        and files[path]
        and (places := places_of(files[path], field, alive))
    ]
    if not found:
        return None
    path, places = rng.choice(found)
    data = files[path]
    at = rng.choice(places)
    old = data[at : at + field.size]
    new = bytearray(old)
    if kind == "zeros":
        new = bytearray(field.size)
    elif kind == "ones":
        new = bytearray(b"\xff" * field.size)
    elif kind == "swap":
        other = rng.choice(places)
        new = bytearray(data[other : other + field.size])
        data = data[:other] + old + data[other + field.size :]
    else:
        place = {"low bit": -1, "middle bit": field.size // 2, "high bit": 0}[kind]
        new[place] ^= 1 << rng.randrange(8)
    changed = data[:at] + bytes(new) + data[at + field.size :]
    return None if changed == files[path] else {**files, path: changed}


def damage_whole(files: dict[str, bytes], path: str, kind: str) -> dict[str, bytes]:
    """The files with one of them empty, cut off in the middle, gone or full of zeros."""
    if kind == "deleted":
        return {name: data for name, data in files.items() if name != path}
    data = files[path]
    changed = {"empty": b"", "half": data[: len(data) // 2]}.get(kind, bytes(len(data)))
    return {**files, path: changed}
