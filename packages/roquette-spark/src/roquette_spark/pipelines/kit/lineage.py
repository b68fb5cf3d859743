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
from roquette.base.options import split_addresses, without_password
from roquette.errors import ConfigError

PRODUCER = "urn:roquette:pipelines"
_INSTALL = 'pip install "roquette[lineage]"'
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_TIMEOUT_S = 5.0
_NAMED_BY = ("to", "debezium", "topics_pattern", "topics", "topic", "table", "groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A topic or a table, named as OpenLineage names datasets.

    Attributes:
        rows: that a run has read or written; None if it has not counted.
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
    first = split_addresses(namesrv)[0]
    return Dataset(namespace=f"rocketmq://{first}", name=topic, rows=rows)


def table_dataset(root: str, rows: int | None = None, at: Any = None) -> Dataset:
    """A table of files, of whatever format: its place; `at` is its Snapshot."""
    where = urlsplit(root)
    facts: dict[str, Any] = {"rows": rows}
    if at is not None:
        facts |= {"schema": at.schema, "version": at.version}
    if where.scheme in ("", "file"):
        return Dataset(namespace="file", name=os.path.abspath(where.path), **facts)
    place = f"{where.scheme}://{where.netloc}".replace("s3a:", "s3:", 1)
    return Dataset(namespace=place, name=where.path.strip("/") or "/", **facts)


class Lineage:
    """Sends the events of one run of a pipeline, or none if nothing says where to.

    Args:
        options: the pipeline's.
        say: shows a line.

    Raises:
        ConfigError: --lineage is no address, or openlineage-python is not installed.
    """

    def __init__(
        self, pipeline: str, options: Any, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._say = say
        self._client: Any = None
        files = map(os.path.expanduser, _FILES)
        named = any(name.startswith(_VARIABLES) for name in os.environ)
        if not (options.lineage or named or any(map(os.path.isfile, files))):
            return
        try:
            from openlineage.client.uuid import generate_new_uuid
        except ImportError:
            if options.lineage:
                raise ConfigError(f"openlineage-python is not installed: {_INSTALL}") from None
            say(f"warning: OpenLineage is configured, but not installed: {_INSTALL}")
            return
        self._client = _client(options.lineage)
        self._run_id = str(generate_new_uuid())
        self._kind = "STREAMING" if getattr(options, "follow", False) else "BATCH"
        # The same for each run of the same work: where it writes, else what it reads.
        found = next((value for name in _NAMED_BY if (value := getattr(options, name, ""))), "")
        what = without_password(found if isinstance(found, str) else ",".join(found))
        self._name = f"roquette.{pipeline}.{what}".rstrip(".")

    def send(
        self,
        state: str,
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

        wrong = facets.error_message_run.ErrorMessageRunFacet(error, "PYTHON")
        kind = facets.job_type_job.JobTypeJobFacet(self._kind, "ROQUETTE", "PIPELINE")
        read = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        wrote = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        return events.RunEvent(
            eventTime=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(),
            producer=PRODUCER,
            eventType=events.RunState[state],
            run=events.Run(self._run_id, {"errorMessage": wrong} if error else {}),
            job=events.Job(namespace, self._name, {"jobType": kind}),
            inputs=[_told(each, events.InputDataset, "inputStatistics", read) for each in reads],
            outputs=[
                _told(each, events.OutputDataset, "outputStatistics", wrote) for each in writes
            ],
        )


def _client(url: str) -> Any:
    from openlineage.client import OpenLineageClient

    if not url:
        return OpenLineageClient()
    if not url.startswith(("http://", "https://")) or not urlsplit(url).netloc:
        raise ConfigError(f"--lineage {without_password(url)} is no http:// or https:// address")
    how = {"type": "http", "url": url, "timeout": _TIMEOUT_S, "retry": {"total": 1}}
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        how["auth"] = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(config={"transport": how})


def _told(dataset: Dataset, cls: Any, name: str, count: Any) -> Any:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    about: dict[str, Any] = {}
    if dataset.schema:
        columns = [_field(each) for each in json.loads(dataset.schema)["fields"]]
        about["schema"] = schema_dataset.SchemaDatasetFacet(columns)
    if dataset.version is not None:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(str(dataset.version))
        about["version"] = version
    counts = {} if dataset.rows is None else {name: count(dataset.rows)}
    return cls(dataset.namespace, dataset.name, counts, facets=about)


def _field(column: Mapping[str, Any]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    kind = column["type"]
    inner = [] if isinstance(kind, str) else [_field(each) for each in kind.get("fields", ())]
    name = kind if isinstance(kind, str) else kind["type"]
    return schema_dataset.SchemaDatasetFacetFields(column["name"], name, fields=inner)
