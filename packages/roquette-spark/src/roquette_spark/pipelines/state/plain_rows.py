"""Change events as rows, in a worker: where --version and --delete-when are so plain that Arrow can evaluate them.

Anything else is Spark's to evaluate (change_rows.py); both give the same rows.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.rows.decoder import Bodies, Decoded, Decoder
from roquette_spark.pipelines.rows.json_rows import JsonReader
from roquette_spark.pipelines.rows.kinds import Kind
from roquette_spark.pipelines.state.change_rows import DELETED, NO_KEY, TIES, VERSION, ChangeForm

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
        columns = {name: _column(rows, form, name) for name in form.columns}
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
            lacking = pc.and_(_column(rows, self._form, name).is_null(), pc.is_null(errors))
            lacking = lacking.combine_chunks() if isinstance(lacking, pa.ChunkedArray) else lacking
            errors = pc.if_else(lacking, pa.scalar(NO_KEY), errors)
        return Bodies(found.columns, errors, found.rescued)


def _column(rows: pa.Table, form: PlainForm, name: str) -> Any:
    if form.form.envelope == "none":
        return _value(rows, (*form.root, name))
    after, before = (_value(rows, (*form.root, each, name)) for each in ("after", "before"))
    return pc.coalesce(after, before)


def _value(rows: pa.Table, path: Path) -> Any:
    found = rows.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found
