"""Parts of a table by the hash of the key: each is rewritten by itself. Pure.

A bucket is the keys whose hash has a certain remainder by a power of two. The buckets that a table has are in the names of
its files; a bucket that has grown is split when it is rewritten.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette_spark.pipelines.kit.table_values import DataFile

_NAME = re.compile(r"-b(\d+)of(\d+)_")
_BASE = re.compile(r"(snapshot-\d{10,})/")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """Keys whose hash leaves `number` when divided by `of`, a power of two."""

    of: int = 1
    number: int = 0

    def __str__(self) -> str:
        return f"b{self.number}of{self.of}"

    def split(self, parts: int) -> "list[Bucket]":
        """The same keys in `parts` (a power of two) buckets."""
        return [Bucket(self.of * parts, self.number + self.of * part) for part in range(parts)]

    def contains(self, other: "Bucket") -> bool:
        """Whether it has all keys of another."""
        return other.of >= self.of and other.number % self.of == self.number

    def has(self, hashes: np.ndarray) -> pa.Array:
        """Which of some keys are here."""
        return pa.array((hashes & np.uint64(self.of - 1)) == np.uint64(self.number))


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """What a table has of one bucket.

    Attributes:
        base: files with at most one row per key, in all of them together.
        changes: files of changes since.
    """

    bucket: Bucket
    base: tuple[DataFile, ...] = ()
    changes: tuple[DataFile, ...] = ()

    @property
    def base_rows(self) -> int:
        """Of the base."""
        return sum(file.rows for file in self.base)

    @property
    def change_rows(self) -> int:
        """Of the changes; a key may have several."""
        return sum(file.rows for file in self.changes)


def base_folder(path: str) -> str:
    """The folder of the snapshot that a file was written for; "" for a file of changes."""
    found = _BASE.match(path)
    return "" if found is None else found[1]


def buckets_of(files: Iterable[DataFile]) -> list[BucketFiles]:
    """The files of a table by bucket; together they have all keys, and each key is in one.

    Files of earlier versions, and those that other programs have joined, are of one bucket with all keys.
    """
    found: dict[Bucket, list[DataFile]] = {}
    for file in files:
        name = _NAME.search(file.path)
        bucket = Bucket() if name is None else Bucket(int(name[2]), int(name[1]))
        found.setdefault(bucket, []).append(file)
    return [_bucket_files(bucket, found) for bucket in _cover(Bucket(), set(found))]


def _bucket_files(bucket: Bucket, found: Mapping[Bucket, list[DataFile]]) -> BucketFiles:
    inside = [file for each, some in found.items() if bucket.contains(each) for file in some]
    ordered = sorted(inside, key=lambda file: file.path)
    base = tuple(file for file in ordered if base_folder(file.path))
    return BucketFiles(bucket, base, tuple(f for f in ordered if not base_folder(f.path)))


def _cover(whole: Bucket, there: set[Bucket]) -> list[Bucket]:
    """The buckets that are there, and new ones for keys that are in none of them."""
    inside = {each for each in there if whole.contains(each)}
    if whole in there or not inside:
        return [whole]
    return [each for half in whole.split(2) for each in _cover(half, inside)]


def key_of(rows: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """One value for each key: int64 for one column of whole numbers, else bytes."""
    if len(columns) == 1 and pa.types.is_integer(rows.column(columns[0]).type):
        return rows.column(columns[0]).cast(pa.int64())
    parts = [_bytes_of(rows.column(name)) for name in columns]
    if len(parts) == 1:
        return parts[0]
    sized = []
    for part in parts:  # the lengths before the values: ("a", "bc") is not ("ab", "c")
        sized += [pc.binary_length(part).cast(pa.string()).cast(pa.binary()), part]
    return pc.binary_join_element_wise(*sized, b":")


def _bytes_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type):
        return column
    try:
        return column.cast(pa.string()).cast(pa.binary())
    except pa.ArrowNotImplementedError:
        texts = [json.dumps(value, default=str).encode() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.binary())])


def hashes_of(keys: pa.ChunkedArray) -> np.ndarray:
    """64 bits for each key (see `key_of`), the same for ever."""
    parts = [
        _hash_numbers(c) if pa.types.is_integer(c.type) else _hash_bytes(c) for c in keys.chunks
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hash_numbers(keys: pa.Array) -> np.ndarray:
    return _mixed(keys.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))


def _hash_bytes(keys: pa.Array) -> np.ndarray:
    """Each byte times a power of its place, added up."""
    begins = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: len(keys) + 1]
    data: Any = keys.buffers()[2]
    first, last = (int(begins[0]), int(begins[-1])) if len(keys) else (0, 0)
    held = np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    lengths = np.diff(begins)
    places = np.arange(len(held)) - np.repeat(begins[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _FACTOR))
    sums: np.ndarray = np.zeros(len(held) + 1, np.uint64)
    np.cumsum((held.astype(np.uint64) + np.uint64(1)) * powers[places], out=sums[1:])
    return _mixed(sums[begins[1:] - first] - sums[begins[:-1] - first])


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finisher of splitmix64: every bit depends on all."""
    found = values + _FACTOR
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = found ^ (found >> np.uint64(31))
    return mixed
