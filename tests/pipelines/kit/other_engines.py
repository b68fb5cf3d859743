"""What other engines do to our tables, in their formats' own words: no line of ours writes it."""

import base64
import json
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.typedef import Record

_RFC_1924 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = str.maketrans(_RFC_1924, _Z85)


def vector_text(places: Sequence[int]) -> str:
    """A deletion vector as Delta's protocol has it within an entry: a roaring bitmap in an array of one, as Z85."""
    values = sorted(places)
    roaring = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1, 16)
    roaring += struct.pack(f"<{len(values)}H", *values)
    data = struct.pack("<IQI", 1681511377, 1, 0) + roaring
    data += bytes(-len(data) % 4)
    return base64.b85encode(data).decode().translate(_TO_Z85)


def entries(root: Path) -> list[Path]:
    return sorted((root / "_delta_log").glob("*.json"))


def actions(root: Path) -> list[dict[str, Any]]:
    """All of the log, in order."""
    return [json.loads(line) for each in entries(root) for line in each.read_bytes().splitlines()]


def write_entry(root: Path, *some: dict[str, Any], operation: str = "WRITE") -> None:
    info = {"timestamp": time.time_ns() // 1_000_000, "operation": operation}
    lines = [{"commitInfo": {**info, "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0"}}, *some]
    number = int(entries(root)[-1].stem) + 1
    text = "\n".join(json.dumps(line) for line in lines)
    (root / "_delta_log" / f"{number:020}.json").write_text(text)


def give_features(root: Path, *features: str, **configuration: str) -> None:
    """ALTER TABLE ... SET TBLPROPERTIES as Spark does it: features for readers and writers."""
    about = [each["metaData"] for each in actions(root) if "metaData" in each][-1]
    found = {name.replace("_", "."): value for name, value in configuration.items()}
    about["configuration"] |= found
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(features),
        "writerFeatures": list(features),
    }
    write_entry(root, {"protocol": protocol}, {"metaData": about}, operation="SET TBLPROPERTIES")


def delete_by_vector(root: Path, path: str, places: Sequence[int]) -> None:
    """DELETE as Spark 4.2 with Delta 4.4 does it: the file stays, with a vector of the rows that are gone."""
    if not any("deletionVectors" in json.dumps(each.get("protocol")) for each in actions(root)):
        give_features(root, "deletionVectors", delta_enableDeletionVectors="true")
    added = [a["add"] for a in actions(root) if "add" in a and a["add"]["path"] == path][-1]
    now_ms = time.time_ns() // 1_000_000
    text = vector_text(places)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(text) * 4 // 5,
        "cardinality": len(places),
    }
    gone = {
        "path": path,
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": added["partitionValues"],
        "size": added["size"],
        **({"deletionVector": added["deletionVector"]} if added.get("deletionVector") else {}),
    }
    again = {**added, "dataChange": True, "deletionVector": vector}
    write_entry(root, {"add": again}, {"remove": gone}, operation="DELETE")


def delete_by_file(table: Any, path: str, places: Sequence[int], *, equal: bool = False) -> None:
    """DELETE as Iceberg's merge-on-read does it: a file of positions; `equal`: of values of column n."""
    location = table.location()
    name = f"{location}/metadata/deletes-{time.time_ns()}.parquet".removeprefix("file://")
    columns = {"n": pa.array(places, pa.int32())}
    if not equal:
        columns = {"file_path": pa.array([path] * len(places)), "pos": pa.array(places, pa.int64())}
    pq.write_table(pa.table(columns), name)
    spec, schema = table.spec(), table.schema()
    (data,) = [each.file for each in table.scan().plan_files() if each.file.file_path == path]
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if equal else DataFileContent.POSITION_DELETES,
        file_path=f"file://{name}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(data.partition[at] for at in range(len(spec.fields)))),
        record_count=len(places),
        file_size_in_bytes=Path(name).stat().st_size,
        equality_ids=[schema.find_field("n").field_id] if equal else None,
    )
    file.spec_id = spec.spec_id
    with table.transaction() as change:
        snapshot = change.update_snapshot().fast_append()
        snapshot._manifests = lambda: _with_deletes(table, snapshot, file)
        snapshot.commit()


class _DeletesWriter(ManifestWriterV2):
    """pyiceberg writes manifests of data only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _with_deletes(table: Any, snapshot: Any, file: DataFile) -> list[ManifestFile]:
    place = f"{table.location()}/metadata/deletes-{time.time_ns()}-m0.avro"
    output: PyArrowFile = table.io.new_output(place)
    number = snapshot._snapshot_id
    with _DeletesWriter(table.spec(), table.schema(), output, number, "null") as writer:
        writer.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file
            )
        )
    before = table.current_snapshot().manifests(table.io)
    return [*before, writer.to_manifest_file()]
