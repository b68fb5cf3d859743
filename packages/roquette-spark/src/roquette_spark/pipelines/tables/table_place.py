"""Owner of a directory, and the files in it that we may remove; asked before anything in it is changed."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.table_files import Snapshot, TableFiles
from roquette_spark.pipelines.kit.topics import checkpoint_offsets

OWN_FOLDER = "_roquette"  # lock, staging, checkpoint of the stream; readers skip names with "_"
CHECKPOINT = f"{OWN_FOLDER}/checkpoint"
STAGING = f"{OWN_FOLDER}/staging"
CATALOG_FILE = f"{OWN_FOLDER}/catalog.db"  # in the folder of a table that has a catalog of its own
ADDRESS_FILE = f"{OWN_FOLDER}/catalog.json"  # which other one has the table
# Settings of a table, in its log.
STREAM_SETTING = "roquette.stream"  # PIPELINE-TOKEN
SHARED_SETTING = "roquette.shared_stream"  # "true": the stream fills other tables, too
TOPIC_SETTING = "roquette.topic"  # older tables have none: the stream's checkpoint tells
ROWS_SETTING, CHANGES_SETTING = "roquette.rows", "roquette.changes"
_PIPELINES = {ROWS_SETTING: "archive", CHANGES_SETTING: "current-state"}
_SHOWN = 3  # names in an error


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a table: a pipeline, for a topic, its table or the quarantine beside it."""

    pipeline: str
    topic: str
    quarantine: bool = False


def check_place(
    files: TableFiles,
    snapshot: Snapshot,
    owner: Owner,
    *,
    log_folder: str,
    unfinished: str,
) -> None:
    """A place is the owner's if its log says so, or if there is nothing.

    Args:
        log_folder: of the table's format.
        unfinished: a pattern; there may be such files in the log's folder of a place without a table.

    Raises:
        ConfigError: it is somebody else's; says whose. Nothing has been changed.
    """
    if files.local and os.path.lexists(files.root) and not os.path.isdir(files.root):
        raise _refused(owner, files.root, "is no directory")
    if snapshot.version < 0:
        names = [name for name in files.list_names() if name not in (OWN_FOLDER, log_folder)]
        names += [n for n in files.list_names(log_folder) if not re.fullmatch(unfinished, n)]
        if names:
            shown = ", ".join(sorted(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise _refused(
                owner, files.root, f"has no table of ours and is not empty (there is {shown})"
            )
        return
    found = _pipeline_of(snapshot.settings)
    wanted = f"the quarantine of {owner.pipeline}" if owner.quarantine else owner.pipeline
    if found != wanted:
        raise _refused(owner, files.root, f"is a table of {found or 'another program'}")
    kept = snapshot.settings.get(TOPIC_SETTING)
    topics = {kept} if kept else set(checkpoint_offsets(files, CHECKPOINT))
    if topics and owner.topic not in topics:
        raise _refused(owner, files.root, f"is a table of topic {', '.join(sorted(topics))}")


def _refused(owner: Owner, root: str, what: str) -> ConfigError:
    return ConfigError(
        f"{owner.pipeline}: {root} {what}: nothing was changed there; give another --to"
    )


def _pipeline_of(settings: Mapping[str, str]) -> str:
    stream = settings.get(STREAM_SETTING, "")
    for setting, name in _PIPELINES.items():
        if stream.startswith(f"{name}-"):
            return name if setting in settings else f"the quarantine of {name}"
    return ""


def leftovers(files: TableFiles, snapshot: Snapshot, *, only_past: bool = False) -> list[str]:
    """Data files under names that we give, where we put them, that no entry of the log knows: of killed batches.

    Files with other names, in other folders, or behind a link that leads out of the table are not ours.

    Args:
        only_past: another writer may be about to commit: only files that can never count, of batches that are done and
            of versions that are past.
    """
    if snapshot.version < 0:
        return []
    known = snapshot.files.keys() | snapshot.removed.keys()
    ours = own_names(snapshot.partitioned_by)
    return [
        file.path
        for file in files.list_tree()
        if (found := ours.fullmatch(file.path))
        and file.path not in known
        and (not only_past or _is_past(found, snapshot))
        and files.inside(file.path)
    ]


def _is_past(name: re.Match[str], snapshot: Snapshot) -> bool:
    if name["version"] is not None:
        return int(name["version"]) < snapshot.version
    batch = name["batch"] or name["snapshot"]
    done = snapshot.batches.get(snapshot.settings.get(STREAM_SETTING, ""), -1)
    return batch is not None and int(batch) <= done


def own_names(partitioned_by: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern by which tasks and compaction name files, and snapshots their folders."""
    folders = "".join(f"{re.escape(name)}=[^/]*/" for name in partitioned_by)
    compact = r"compact-(?:(?P<version>\d{10,})-)?\w+"
    batch = rf"{folders}(?:batch-(?P<batch>\d{{10,}})(?:-\w+)?|{compact})"
    part = rf"snapshot-(?P<snapshot>\d{{10,}})/{folders}part(?:-\w+)?"
    return re.compile(rf"(?:{batch}|{part})-\d{{5,}}\.parquet")


def numbered(snapshot: Snapshot, entropy: Entropy) -> str:
    """A name that nobody else has, for what only counts if it makes the version after this one."""
    return f"{max(0, snapshot.version):010}-{entropy.token()}"


def dead_staging(files: TableFiles, snapshot: Snapshot) -> list[str]:
    """Folders of jobs that can never be published."""
    if files.local:
        return [STAGING]
    found = (re.fullmatch(r"(\d{10,})-\w+", name) for name in files.list_names(STAGING))
    return [f"{STAGING}/{each[0]}" for each in found if each and int(each[1]) < snapshot.version]


# Who knows where tables of Iceberg are; known without pyiceberg.


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """Who knows a table of Iceberg; without an address the table has a catalog in its own folder.

    Secrets are not part of it: pyiceberg reads them from its own configuration.

    Attributes:
        uri: of a server of Iceberg's REST catalog, such as http://host:8181; or the name of a catalog, of any kind, in
            pyiceberg's configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__...).
        warehouse: what a REST server calls the place of tables; may be empty.
        namespace: of the tables; parts with dots.
    """

    uri: str = ""
    warehouse: str = ""
    namespace: str = "roquette"
