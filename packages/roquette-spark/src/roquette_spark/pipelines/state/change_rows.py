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
from roquette_spark.pipelines.rows.decoder import Bodies, Decoded, Decoder, Kind
from roquette_spark.pipelines.rows.json_rows import JsonReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED, VERSION = "deleted", "_version"
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


def mark_changes(messages: "DataFrame", changes: ChangeForm) -> "DataFrame":
    """Messages with the parsed body, and BAD where a body or its key cannot be read.

    Raises:
        ConfigError: a key column or an expression does not fit the body's columns.
    """
    from pyspark.sql import functions as f

    form = forms.RowForm("json", changes.body_schema)
    # A deletion in Debezium's manner is followed by a message without a body, for compacted topics.
    kept = messages if changes.envelope == "none" else messages.where(f.length("body") > 0)
    rows = forms.marked(kept, form)
    body = rows.schema[forms.PARSED].dataType
    root = forms.PARSED
    if changes.envelope == "debezium":
        if "payload" in body.names:
            body, root = body["payload"].dataType, f"{root}.payload"
        missing = {"op", "before", "after", "ts_ms"} - set(body.names)
        if missing:
            raise ConfigError(
                f"current-state: bodies have no {', '.join(sorted(missing))}: that is not Debezium's envelope"
            )
        body = body["after"].dataType
    unknown = [name for name in changes.key if name not in body.names]
    if unknown:
        raise ConfigError(
            f"current-state: --key {', '.join(unknown)} is no column of the body; those are: "
            f"{', '.join(name for name in body.names if name != forms.CORRUPT)}"
        )
    no_key = f.lit(False)
    for name in changes.key:
        no_key = no_key | _column(changes, root, name).isNull()
    reason = f.coalesce(f.col(forms.BAD), f.when(no_key, NO_KEY))
    return rows.withColumn(forms.BAD, reason)


def _column(changes: ChangeForm, root: str, name: str) -> Any:
    from pyspark.sql import functions as f

    if changes.envelope == "none":
        return f.col(f"{root}.`{name}`")
    return f.coalesce(f.col(f"{root}.after.`{name}`"), f.col(f"{root}.before.`{name}`"))


def changes_of(rows: "DataFrame", changes: ChangeForm) -> "DataFrame":
    """The columns of the table, one row per change.

    Raises:
        ConfigError: an expression names what is not there.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    body = rows.schema[forms.PARSED].dataType
    root, names = forms.PARSED, body.names
    version, delete = changes.version or "store_timestamp", changes.delete_when or "false"
    if changes.envelope == "debezium":
        if "payload" in body.names:
            body, root = body["payload"].dataType, f"{root}.payload"
        names = body["after"].dataType.names
        version, delete = changes.version or "ts_ms", changes.delete_when or "op = 'd'"
    good = rows.where(f.col(forms.BAD).isNull())
    # Expressions see the body's columns, and those columns of the message that are not called alike.
    seen = [name for name in body.names if name != forms.CORRUPT]
    lower = {name.lower() for name in (*seen, forms.PARSED, forms.BAD)}
    wide = good.select(
        f.struct(*good.columns).alias("_row"),
        *(f.col(f"{root}.`{name}`").alias(name) for name in seen),
        *(name for name in good.columns if name.lower() not in lower),
    )
    try:
        marked = wide.select(
            "_row.*",
            f.expr(version).alias(VERSION),
            f.coalesce(f.expr(delete).cast("boolean"), f.lit(False)).alias(DELETED),
        )
    except PySparkException as error:
        line = " ".join(str(error).split("\n", 1)[0].split())[:300]
        raise ConfigError(
            f"current-state: --version {version!r} or --delete-when {delete!r} cannot be used: {line}"
        ) from None
    columns = [_column(changes, root, name).alias(name) for name in names if name != forms.CORRUPT]
    columns += [f.col(name.removeprefix("_")).alias(name) for name in TIES]
    if forms.RESCUED not in names:
        columns.append(f.col(f"{forms.LOOKED}.rescued").alias(forms.RESCUED))
    return marked.select(*columns, VERSION, DELETED)


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
# Versions are compared as Spark compares them: null is the least, NaN the greatest number; for equal ones the place in the topic decides.


ORDER = (VERSION, *TIES)


def newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row of each key."""
    if not rows.num_rows:
        return rows
    order = _order(rows)
    keys = pa.table({"key": key_of(rows, key).take(order), "at": np.arange(rows.num_rows)})
    last = keys.group_by("key", use_threads=False).aggregate([("at", "max")])
    return rows.take(order.take(last.column("at_max").sort()))


class Overlay:
    """Changes of some keys, one each, laid over rows that are older for the most part.

    Args:
        changes: one row of each key.
    """

    def __init__(self, changes: pa.Table, key: Sequence[str]) -> None:
        self._changes = changes
        self._key = key
        keys = key_of(changes, key)
        self._keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], keys.type)
        self._older = np.zeros(changes.num_rows, bool)

    def over(self, base: pa.Table) -> pa.Table:
        """Those of `base` (one row of each key) that no change replaces."""
        found = pc.index_in(key_of(base, self._key), value_set=self._keys)
        hit = pc.indices_nonzero(pc.is_valid(found))
        if not len(hit):
            return base
        changed = found.take(hit)
        changed = changed.combine_chunks() if isinstance(changed, pa.ChunkedArray) else changed
        kept = np.ones(base.num_rows, bool)
        behind = _behind(base.take(hit), self._changes.take(changed))
        kept[hit.to_numpy()[behind]] = False
        self._older[changed.to_numpy(zero_copy_only=False)[~behind]] = True
        return base.filter(pa.array(kept))

    def rest(self) -> pa.Table:
        """The changes that are newer than all that was under them."""
        return self._changes.filter(pa.array(~self._older))


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


# Change events as rows, in a worker: where --version and --delete-when are so plain that Arrow can evaluate them.
# Anything else is Spark's to evaluate (change_rows.py); both give the same rows.


_PATH = r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*"
_EQUALS = re.compile(rf"\s*({_PATH})\s*=\s*'([^'\\]*)'\s*")
_NULL = re.compile(rf"\s*({_PATH})\s+is\s+(not\s+)?null\s*", re.IGNORECASE)
_WORDS = frozenset(("true", "false", "null", "not", "current_date", "current_timestamp", "now"))
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainForm:
    """A ChangeForm that needs no Spark.

    Attributes:
        version: where the version is in the columns of a decoded message.
        deleted: where that is which tells deletions; () if none is one.
        test: "true", "=", "null" or "not null".
        equals: what it is compared with.
        root: where in the body the change is.
        columns: of the change.
    """

    form: ChangeForm
    version: Path
    deleted: Path
    test: str
    equals: str
    root: Path
    columns: tuple[str, ...]


def plain_form(form: ChangeForm) -> PlainForm | None:
    """None where Spark has to evaluate it. The form has been checked (change_rows.py)."""
    try:
        JsonReader(form.body_schema)
    except (ValueError, TypeError):  # a type that JSON or Arrow has not
        return None
    body: Kind = json.loads(form.body_schema)
    if not all(forms.may_be_column(field["name"]) for field in body["fields"]):
        return None
    root: Path = ()
    version, delete = form.version or "store_timestamp", form.delete_when
    columns = _fields(body)
    if form.envelope == "debezium":
        if "payload" in columns:
            body, root = columns["payload"], ("payload",)
        version, delete = form.version or "ts_ms", form.delete_when or "op = 'd'"
        columns = _fields(_fields(body)["after"])
    found = _place(body, root, version), *_deletion(body, root, delete)
    where, (deleted, test, equals) = found[0], found[1:]
    if where is None or deleted is None:
        return None
    return PlainForm(form, where, deleted, test, equals, root, tuple(columns))


def _fields(kind: Kind) -> dict[str, Kind]:
    if not isinstance(kind, dict) or kind["type"] != "struct":
        return {}
    return {field["name"]: field["type"] for field in kind["fields"]}


def _kind(body: Kind, path: Path) -> Kind | None:
    for name in path:
        body = _fields(body).get(name)
        if body is None:
            return None
    return body


def _place(body: Kind, root: Path, text: str) -> Path | None:
    """Of a column of the body, or of the message where the body has none of that name; None for all else."""
    path = tuple(text.strip().split("."))
    if not re.fullmatch(_PATH, text.strip()) or path[0].lower() in _WORDS:
        return None
    if _kind(body, path) is not None:
        return (*root, *path)
    taken = {name.lower() for name in _fields(body)}
    if len(path) == 1 and path[0] in forms.BESIDE_COLUMNS and path[0] not in taken:
        return (f"_{path[0]}",)
    return None


def _deletion(body: Kind, root: Path, text: str) -> tuple[Path | None, str, str]:
    if not text:
        return (), "true", ""
    if (found := _EQUALS.fullmatch(text)) and _kind(body, tuple(found[1].split("."))) == "string":
        return _place(body, root, found[1]), "=", found[2]
    if found := _NULL.fullmatch(text):
        return _place(body, root, found[1]), "not null" if found[2] else "null", ""
    if _kind(body, tuple(text.strip().split("."))) == "boolean":
        return _place(body, root, text), "true", ""
    return None, "", ""


class PlainRows:
    """Reads the changes of one task."""

    def __init__(self, form: PlainForm) -> None:
        self._form = form
        row_form = forms.RowForm("json", form.form.body_schema)
        self._decoder = Decoder(row_form, _KeyedReader(form))
        self.bad_schema = self._decoder.bad_schema

    def read(self, messages: pa.RecordBatch) -> tuple[pa.Table, Decoded]:
        """Changes with the columns of the table, and the messages that are none in `bad`."""
        if self._form.form.envelope != "none":  # a deletion is followed by a message without a body
            messages = messages.filter(pc.greater(pc.binary_length(messages.column("body")), 0))
        decoded = self._decoder.decode(messages)
        return self._changes(decoded.good), decoded

    def _changes(self, rows: pa.Table) -> pa.Table:
        form = self._form
        columns = {name: _plain_column(rows, form, name) for name in form.columns}
        columns |= {name: rows.column(name) for name in TIES}
        columns.setdefault(forms.RESCUED, rows.column(forms.RESCUED))
        columns[VERSION] = _value(rows, form.version)
        columns[DELETED] = self._deleted(rows)
        return pa.table(columns)

    def _deleted(self, rows: pa.Table) -> Any:
        form = self._form
        if not form.deleted:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        value = _value(rows, form.deleted)
        if form.test == "=":
            value = pc.equal(value, pa.scalar(form.equals, value.type))
        elif form.test != "true":
            value = value.is_valid() if form.test == "not null" else value.is_null()
        return pc.fill_null(value, False)


class _KeyedReader(JsonReader):
    """Bodies without a key are bad."""

    def __init__(self, form: PlainForm) -> None:
        super().__init__(form.form.body_schema)
        self._form = form
        self._names = list(_fields(json.loads(form.form.body_schema)))

    def read(self, bodies: pa.Array) -> Bodies:
        found = super().read(bodies)
        rows = pa.table(dict(zip(self._names, found.columns, strict=True)))
        errors = found.errors
        for name in self._form.form.key:
            lacking = pc.and_(_plain_column(rows, self._form, name).is_null(), pc.is_null(errors))
            lacking = lacking.combine_chunks() if isinstance(lacking, pa.ChunkedArray) else lacking
            errors = pc.if_else(lacking, pa.scalar(NO_KEY), errors)
        return Bodies(found.columns, errors, found.rescued)


def _plain_column(rows: pa.Table, form: PlainForm, name: str) -> Any:
    if form.form.envelope == "none":
        return _value(rows, (*form.root, name))
    after, before = (_value(rows, (*form.root, each, name)) for each in ("after", "before"))
    return pc.coalesce(after, before)


def _value(rows: pa.Table, path: Path) -> Any:
    found = rows.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found
