"""Lineage of a run as OpenLineage's events, by its own client: START, then COMPLETE, FAIL or ABORT.

The client is configured as everywhere: OPENLINEAGE_URL, OPENLINEAGE_CONFIG, openlineage.yml; or by --lineage URL. Without one of them
it is not even imported. An event that cannot be sent is a line on the screen and ends no run.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from roquette.base.clock import Clock
from roquette.base.options import without_password
from roquette.errors import ConfigError

PRODUCER = "urn:roquette:pipelines"
_INSTALL = 'pip install "roquette[lineage]"'
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_TIMEOUT_S = 5.0
_NAMED_BY = ("to", "topics_pattern", "topics", "topic", "table", "groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A topic or a table that a run has read or written.

    Attributes:
        namespace, name: by OpenLineage's naming of datasets.
        rows: that this run has read or written; None if it has not counted.
        schema: Spark's JSON of the columns; "" if there is none.
        version: of a table.
    """

    namespace: str
    name: str
    rows: int | None = None
    schema: str = ""
    version: int | None = None


def topic_dataset(namesrv: str, topic: str, rows: int | None = None) -> Dataset:
    """A topic: as Kafka's, the first of the servers names the cluster."""
    first = namesrv.replace(",", ";").split(";")[0].strip()
    return Dataset(namespace=f"rocketmq://{first}", name=topic, rows=rows)


def table_dataset(root: str, **facts: Any) -> Dataset:
    """A table of files, of whatever format: its place."""
    where = urlsplit(root)
    if where.scheme in ("", "file"):
        return Dataset(namespace="file", name=os.path.abspath(where.path), **facts)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(where.scheme, where.scheme)
    place = where.path.strip("/") or "/"
    return Dataset(namespace=f"{scheme}://{where.netloc}", name=place, **facts)


class Lineage:
    """Sends the events of one run, or none if nothing says where to.

    Args:
        url: of --lineage.
        name: of the job.
        say: shows a line.

    Raises:
        ConfigError: --lineage is no address, or openlineage-python is not installed.
    """

    def __init__(
        self, url: str, name: str, *, follows: bool, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._name = name
        self._kind = "STREAMING" if follows else "BATCH"
        self._clock = clock
        self._say = say
        self._client: Any = None
        named = any(name.startswith(_VARIABLES) for name in os.environ)
        if not (url or named or any(map(os.path.isfile, map(_home, _FILES)))):
            return
        try:
            from openlineage.client.uuid import generate_new_uuid
        except ImportError:
            if url:
                raise ConfigError(f"openlineage-python is not installed: {_INSTALL}") from None
            say(f"warning: OpenLineage is configured, but not installed: {_INSTALL}")
            return
        self._client = _client(url)
        self._run_id = str(generate_new_uuid())

    def send(
        self,
        state: str,
        *,
        error: str = "",
        reads: Sequence[Dataset] = (),
        writes: Sequence[Dataset] = (),
    ) -> None:
        """Send one event; `state` is START, COMPLETE, FAIL or ABORT."""
        if self._client is None:
            return
        try:
            self._client.emit(self._event(state, error, reads, writes))
            if state != "START":
                self._client.close(_TIMEOUT_S)
        except Exception as problem:  # noqa: BLE001 - of whatever transport is configured
            what = without_password(" ".join(str(problem).split()))[:200]
            self._say(f"warning: the lineage event {state} was not sent: {what}")

    def _event(
        self, state: str, error: str, reads: Sequence[Dataset], writes: Sequence[Dataset]
    ) -> Any:
        from openlineage.client import event_v2 as events
        from openlineage.client import facet_v2 as facets

        about: dict[str, Any] = {}
        if error:
            about["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(error, "PYTHON")
        kind = facets.job_type_job.JobTypeJobFacet(self._kind, "ROQUETTE", "PIPELINE")
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        read = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        wrote = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return events.RunEvent(
            eventTime=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(),
            producer=PRODUCER,
            eventType=events.RunState[state],
            run=events.Run(self._run_id, about),
            job=events.Job(namespace, self._name, {"jobType": kind}),
            inputs=[
                events.InputDataset(
                    each.namespace,
                    each.name,
                    {} if each.rows is None else {"inputStatistics": read(each.rows)},
                    facets=_facets(each),
                )
                for each in reads
            ],
            outputs=[
                events.OutputDataset(
                    each.namespace,
                    each.name,
                    {} if each.rows is None else {"outputStatistics": wrote(each.rows)},
                    facets=_facets(each),
                )
                for each in writes
            ],
        )


def _home(path: str) -> str:
    return os.path.expanduser(path)


def _client(url: str) -> Any:
    from openlineage.client import OpenLineageClient

    if not url:
        return OpenLineageClient()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--lineage {without_password(url)} is no http:// or https:// address")
    key = os.environ.get("OPENLINEAGE_API_KEY", "")
    auth = {"auth": {"type": "api_key", "apiKey": key}} if key else {}
    how = {"type": "http", "url": url, "timeout": _TIMEOUT_S, "retry": {"total": 1}, **auth}
    return OpenLineageClient(config={"transport": how})


def job_name(pipeline: str, options: object) -> str:
    """A name that is the same for each run of the same work: the pipeline, and where it writes or what it reads."""
    found = next((value for name in _NAMED_BY if (value := getattr(options, name, ""))), "")
    what = found if isinstance(found, str) else ",".join(found)
    return f"roquette.{pipeline}.{without_password(what)}".rstrip(".")


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    found: dict[str, Any] = {}
    if dataset.schema:
        columns = json.loads(dataset.schema)["fields"]
        found["schema"] = schema_dataset.SchemaDatasetFacet([_field(each) for each in columns])
    if dataset.version is not None:
        version = str(dataset.version)
        found["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(version)
    return found


def _field(column: Mapping[str, Any]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    kind = column["type"]
    if isinstance(kind, str):
        return schema_dataset.SchemaDatasetFacetFields(column["name"], kind)
    inner = [_field(each) for each in kind.get("fields", ())]
    return schema_dataset.SchemaDatasetFacetFields(column["name"], kind["type"], fields=inner)
