"""Change events as rows of a current state: which is the key, the version, a deletion; which rows are bad."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.table_files import DataFile
from roquette_spark.pipelines.rows.connect_json import ConnectReader
from roquette_spark.pipelines.rows.decoder import (
    ASIDE,
    Decoded,
    Kind,
    arrow_of,
    decode_safely,
    fields_of,
    joined,
    messages_schema,
    quarantine_type,
    set_aside,
    struct_of,
)
from roquette_spark.pipelines.rows.json_rows import JsonReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

DELETED, VERSION = "deleted", "_version"
ROW = "_roquette_row"
NO_KEY = "a column of the key is null"
TIES = (
    "_store_timestamp",
    "_broker_name",
    "_queue_id",
    "_queue_offset",
)  # equal versions: the later one


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """Form of changes: how a body becomes one; kept with the table."""

    body_schema: str
    key: tuple[str, ...]
    version: str
    delete_when: str
    envelope: str

    @classmethod
    def of_settings(cls, text: str) -> "ChangeForm":
        """From a table's settings."""
        found = {name: value for name, value in json.loads(text).items() if name != forms.NEWER}
        return cls(**{**found, "key": tuple(found["key"])})

    def settings(self) -> str:
        """For a table's settings."""
        return json.dumps({**{n: getattr(self, n) for n in self.__slots__}, forms.NEWER: True})


# Parts of a table by the hash of the key: each is rewritten by itself. Pure.
# A bucket is the keys whose hash has a certain remainder by a power of two. The buckets that a table has are in the names of its files; a bucket that has grown is split when it is rewritten.


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
        """Return True if it has all keys of another."""
        return other.of >= self.of and other.number % self.of == self.number

    def has(self, hashes: np.ndarray) -> pa.Array:
        """Tell for each of some keys if it is here."""
        return pa.array((hashes & np.uint64(self.of - 1)) == np.uint64(self.number))


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """Files that a table has of one bucket.

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


# Which change of a key is the newest, in Arrow. Pure.
# Versions are compared as Spark compares them, NaN the greatest number; for equal ones the place in the topic decides. A change without
# a version counts as one of the highest version that its key has, so that its place decides: it is newer than all before it.


ORDER = (VERSION, *TIES)


def newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The newest row of each key; of a key with rows without a version the last of these, and the one with the highest.

    Which of the two counts is known where all rows of the key are: an older one may have a higher version.
    """
    if not rows.num_rows:
        return rows
    found = _last(rows, key)
    if rows.column(VERSION).null_count:
        bare = pc.indices_nonzero(rows.column(VERSION).is_null())
        found = pc.unique(pa.concat_arrays([found, bare.take(_last(rows.take(bare), key))]))
    return rows.take(found.sort())


def _last(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """The place of each key's newest row by versions as they are, null the least."""
    order = _order(rows)
    keys = pa.table({"key": key_of(rows, key).take(order), "at": np.arange(rows.num_rows)})
    last = keys.group_by("key", use_threads=False).aggregate([("at", "max")])
    return order.take(_one(last.column("at_max")))


def _resolved(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row of each key, of all that there are, with the version that it counts as."""
    highest, keys = rows.take(_last(rows, key)), key_of(rows, key)
    versions = highest.column(VERSION).take(pc.index_in(keys, value_set=_one(key_of(highest, key))))
    at, own = rows.schema.get_field_index(VERSION), rows.column(VERSION)
    filled = rows.set_column(at, VERSION, pc.if_else(own.is_valid(), own, versions))
    return filled.take(_last(filled, key))


def _one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


class Overlay:
    """Changes of some keys laid over rows that are older for the most part.

    Args:
        changes: what `newest` gives.
    """

    def __init__(self, changes: pa.Table, key: Sequence[str]) -> None:
        self._key = key
        keys = _one(key_of(changes, key))
        self._apart = pc.unique(keys.filter(_one(changes.column(VERSION)).is_null()))
        apart = pc.is_in(keys, value_set=self._apart)
        self._parts = [changes.filter(apart)]  # rows of keys that are compared when all are there
        self._changes = changes.filter(pc.invert(apart))
        self._keys = keys.filter(pc.invert(apart))
        self._older = np.zeros(self._changes.num_rows, bool)

    def over(self, base: pa.Table) -> pa.Table:
        """Those of `base` (one row of each key) that no change replaces."""
        if len(self._apart):
            apart = pc.is_in(key_of(base, self._key), value_set=self._apart)
            self._parts.append(base.filter(apart))
            base = base.filter(pc.invert(apart))
        found = pc.index_in(key_of(base, self._key), value_set=self._keys)
        hit = pc.indices_nonzero(pc.is_valid(found))
        if not len(hit):
            return base
        changed = found.take(hit)
        changed = changed.combine_chunks() if isinstance(changed, pa.ChunkedArray) else changed
        under, mine = base.take(hit), self._changes.take(changed)
        bare = _one(under.column(VERSION)).is_null()
        behind, at = _behind(under, mine), changed.to_numpy(zero_copy_only=False)
        if under.column(VERSION).null_count:
            self._parts += [under.filter(bare), mine.filter(bare)]
        kept, gone = np.ones(base.num_rows, bool), bare.to_numpy(zero_copy_only=False)
        kept[hit.to_numpy()[behind | gone]] = False
        self._older[at[~behind | gone]] = True
        return base.filter(pa.array(kept))

    def rest(self) -> pa.Table:
        """The changes that are newer than all that was under them; after every `over`."""
        newer, parts = self._changes.filter(pa.array(~self._older)), pa.concat_tables(self._parts)
        return pa.concat_tables([newer, _resolved(parts, self._key)]) if len(parts) else newer


def _behind(base: pa.Table, changes: pa.Table) -> np.ndarray:
    """Tell for each row of `base` if that of `changes` at its place replaces it."""
    count = base.num_rows
    both = pa.concat_tables([each.select(list(ORDER)) for each in (base, changes)])
    ranks = np.empty(2 * count, np.int64)
    ranks[_order(both).to_numpy()] = np.arange(2 * count)
    found: np.ndarray = ranks[:count] < ranks[count:]
    return found


def _order(rows: pa.Table) -> pa.Array:
    """Places of rows, from the oldest to the newest."""
    columns = [each for name in ORDER for each in _sortable(rows.column(name))]
    named = {str(number): column for number, column in enumerate(columns)}
    return pc.sort_indices(pa.table(named), sort_keys=[(name, "ascending") for name in named])


def _sortable(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Columns that Arrow puts in Spark's order. Raises ConfigError for a type that has none."""
    kind = column.type
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        raise ConfigError(f"current-state: --version is of type {kind}, which has no order here")
    if column.null_count:
        yield column.is_valid()
    if pa.types.is_struct(kind):
        whole = column.combine_chunks()
        whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
        for part in whole.flatten():
            yield from _sortable(pa.chunked_array([part]))
        return
    if pa.types.is_floating(kind):
        yield pc.is_nan(column).fill_null(False)
    yield column


# Change events as rows, in a worker. --version and --delete-when are evaluated here where they are so plain that Arrow can; else Spark
# evaluates them over what is read here.


DEBEZIUMS_DELETION = "op = 'd' or after is null"
_PATH = r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*"
_EQUALS = re.compile(rf"\s*({_PATH})\s*=\s*'([^'\\]*)'\s*")
_NULL = re.compile(rf"\s*({_PATH})\s+is\s+(not\s+)?null\s*", re.IGNORECASE)
_OR = re.compile(r"\s+or\s+", re.IGNORECASE)
_WORDS = frozenset(("true", "false", "null", "not", "current_date", "current_timestamp", "now"))
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Test:
    """One thing that may tell a deletion.

    Attributes:
        path: of a value, in what expressions see.
        test: "true", "=", "null" or "not null".
        equals: what it is compared with.
    """

    path: Path
    test: str
    equals: str = ""

    def of(self, seen: "_Seen") -> pa.Array:
        """Whether it tells that, of each row."""
        value = seen.value(self.path)
        if self.test == "=":
            value = pc.equal(value, pa.scalar(self.equals, value.type))
        elif self.test != "true":
            value = value.is_valid() if self.test == "not null" else value.is_null()
        return pc.fill_null(value, False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What expressions see: the fields of a change, and those columns of its message that are not called alike."""

    columns: Mapping[str, pa.Array]

    def value(self, path: Path) -> pa.Array:
        """Null where anything on the way is."""
        found = self.columns[path[0]]
        for name in path[1:]:
            found = pc.struct_field(found, name)
        return found


class ChangeShape:
    """Where a change's parts are in its body.

    Attributes:
        wrapped: whether the change is within the body's field `payload`.
        fields: of the change, by name.
        columns: of a row.
        version, delete: the expressions.

    Raises:
        ConfigError: the key, the columns' names or the envelope do not fit.
    """

    def __init__(self, form: ChangeForm) -> None:
        self.form = form
        self.fields = fields_of(json.loads(form.body_schema))
        self.columns = self.fields
        self.wrapped = False
        self.version, self.delete = form.version or "store_timestamp", form.delete_when or "false"
        if form.envelope == "debezium":
            self.wrapped = "payload" in self.fields
            self.fields = fields_of(self.fields["payload"]) if self.wrapped else self.fields
            missing = sorted({"op", "before", "after", "ts_ms"} - self.fields.keys())
            if missing:
                raise ConfigError(
                    f"current-state: bodies have no {', '.join(missing)}: that is not Debezium's envelope"
                )
            self.columns = fields_of(self.fields["after"])
            self.version = form.version or "ts_ms"
            self.delete = form.delete_when or DEBEZIUMS_DELETION
        unknown = [name for name in form.key if name not in self.columns]
        if unknown:
            raise ConfigError(
                f"current-state: --key {', '.join(unknown)} is no column of the body; those are: "
                f"{', '.join(self.columns)}"
            )
        ours = {DELETED, VERSION, *TIES}
        taken = [name for name in self.columns if name.lower() in ours]
        if taken:
            raise ConfigError(
                f"current-state: the body's column {taken[0]} has the name of one of the table's: give a --schema without it"
            )

    def plain_version(self) -> Path | None:
        """Where the version is; None where Spark has to evaluate it."""
        return self._place(self.version)

    def plain_tests(self) -> tuple[_Test, ...] | None:
        """What tells deletions: any of these; None where Spark has to evaluate it."""
        if self.delete == "false":
            return ()
        found = [self._test(text) for text in _OR.split(self.delete)]
        known = [each for each in found if each is not None]
        return tuple(known) if len(known) == len(found) else None

    def _test(self, text: str) -> _Test | None:
        test, equals, path = "true", "", text
        if found := _EQUALS.fullmatch(text):
            test, path, equals = "=", found[1], found[2]
        elif found := _NULL.fullmatch(text):
            test, path = ("not null" if found[2] else "null"), found[1]
        where = self._place(path)
        kind = None if where is None else self._kind(where)
        fits = {"=": kind == "string", "true": kind == "boolean"}.get(test, True)
        return None if where is None or not fits else _Test(where, test, equals)

    def _place(self, text: str) -> Path | None:
        path = tuple(text.strip().split("."))
        if not re.fullmatch(_PATH, text.strip()) or path[0].lower() in _WORDS:
            return None
        taken = {name.lower() for name in self.fields}
        if self._kind(path) is not None or (
            len(path) == 1 and path[0] in forms.BESIDE_COLUMNS and path[0] not in taken
        ):
            return path
        return None

    def _kind(self, path: Path) -> Kind | None:
        found = self.fields.get(path[0])
        for name in path[1:]:
            found = fields_of(found).get(name)
        return found


def enveloped(schema: str) -> str:
    """Columns inferred of Debezium's events (Spark's JSON), with one type of row before and after a change."""
    body = json.loads(schema)
    whole = fields_of(body)
    fields = fields_of(whole["payload"]) if "payload" in whole else whole
    none = struct_of({})
    sides = [each for name in ("before", "after") if fields_of(each := fields.get(name))]
    row = joined(sides[0], sides[-1]) if sides else none
    wanted = {"before": row, "after": row, "op": "string", "ts_ms": "long"} if sides else {}
    found = {**fields, **wanted}
    return json.dumps(struct_of({"payload": struct_of(found)} if "payload" in whole else found))


class ChangeRows:
    """Reads the changes of one task.

    Args:
        plain: evaluate the expressions here if Arrow can.

    Attributes:
        is_plain: rows have the columns of the table; else ROW, and beside it what expressions see, for `evaluated`.

    Raises:
        ConfigError: as `ChangeShape`.
    """

    def __init__(self, form: ChangeForm, *, plain: bool = True) -> None:
        self._shape = ChangeShape(form)
        reads_schemas = form.envelope == "debezium" and not self._shape.wrapped
        self._reader = (ConnectReader if reads_schemas else JsonReader)(form.body_schema)
        self._version, self._tests = self._shape.plain_version(), self._shape.plain_tests()
        self.is_plain = plain and self._version is not None and self._tests is not None
        self.bad_schema = arrow_of(quarantine_type())

    def decode(self, batch: pa.RecordBatch, *, aside: bool = False) -> Decoded:
        """Changes of messages with RAW_COLUMNS; if `aside`, none of them is one. Raises as `decode_safely`."""
        if (
            self._shape.form.envelope != "none"
        ):  # a deletion is followed by a message without a body
            batch = batch.filter(pc.greater(pc.binary_length(batch.column("body")), 0))
        if aside:
            return Decoded(self._decode(batch.slice(0, 0)).good, set_aside(batch, ASIDE))
        return decode_safely(self._decode, batch)

    def _decode(self, batch: pa.RecordBatch) -> Decoded:
        bodies = self._reader.read(batch.column("body"))
        body = dict(zip(self._reader.schema.names, bodies.columns, strict=True))
        if self._shape.wrapped:
            body = {name: pc.struct_field(body["payload"], name) for name in self._shape.fields}
        row, errors = self._row(body), bodies.errors
        for name in self._shape.form.key:
            lacking = pc.and_(row[name].is_null(), pc.is_null(errors))
            errors = pc.if_else(lacking, pa.scalar(NO_KEY), errors)
        row |= {name: batch.column(name.removeprefix("_")) for name in TIES}
        left = pa.nulls(batch.num_rows, pa.string()) if bodies.rescued is None else bodies.rescued
        row.setdefault(forms.RESCUED, left)
        good = self._with_expressions(row, body, batch).filter(fine := pc.is_null(errors))
        rescued = pc.sum(pc.and_(fine, pc.is_valid(left))).as_py() or 0
        return Decoded(good, set_aside(batch, errors), rescued)

    def _row(self, body: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The row after a change; that before it only where there is none after: of a deletion, for its key."""
        if self._shape.form.envelope == "none":
            return dict(body)
        before, after = body["before"], body["after"]
        found, earlier = {}, {before.type.field(at).name for at in range(before.type.num_fields)}
        for name in self._shape.columns:
            found[name] = pc.struct_field(after, name)
            if name in earlier and before.type.field(name).type == found[name].type:
                old = pc.struct_field(before, name)
                found[name] = pc.if_else(after.is_valid(), found[name], old)
        return found

    def _with_expressions(
        self, row: dict[str, pa.Array], body: Mapping[str, pa.Array], batch: pa.RecordBatch
    ) -> pa.Table:
        taken = {name.lower() for name in body}
        beside = {name: batch.column(name) for name in forms.RAW_COLUMNS if name not in taken}
        seen = _Seen({**body, **beside})
        if not self.is_plain or self._version is None:
            whole = pa.StructArray.from_arrays(list(row.values()), names=list(row))
            return pa.table({ROW: whole, **seen.columns})
        deleted = pa.repeat(pa.scalar(False), batch.num_rows)
        for test in self._tests or ():
            deleted = pc.or_(deleted, test.of(seen))
        return pa.table({**row, VERSION: seen.value(self._version), DELETED: deleted})


def unevaluated(form: ChangeForm) -> "StructType":
    """The columns of what Spark evaluates. Raises ConfigError as `ChangeShape`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    none = pa.RecordBatch.from_pylist([], schema=messages_schema())
    return from_arrow_schema(ChangeRows(form, plain=False).decode(none).good.schema)


def evaluated(rows: "DataFrame", form: ChangeForm) -> "DataFrame":
    """The columns of the table, of what `ChangeRows` has read.

    Raises:
        ConfigError: an expression names what is not there.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    shape = ChangeShape(form)
    try:
        return rows.select(
            f"{ROW}.*",
            f.expr(shape.version).alias(VERSION),
            f.coalesce(f.expr(shape.delete).cast("boolean"), f.lit(False)).alias(DELETED),
        )
    except PySparkException as error:
        line = " ".join(str(error).split("\n", 1)[0].split())[:300]
        raise ConfigError(
            f"current-state: --version {shape.version!r} or --delete-when {shape.delete!r} cannot be used: {line}"
        ) from None
