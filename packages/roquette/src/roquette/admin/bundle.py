"""Contents of a report that leaves a cluster: texts without passwords, keys and tokens, and the servers' metrics."""

import asyncio
import json
import re
from typing import Any, Final

from roquette.admin.cluster import cluster_info
from roquette.client.client import Client
from roquette.errors import ClientError, RemoteProtocolError
from roquette.remoting.client import split_address
from roquette.remoting.etcd import connect_http

LEFT_OUT: Final = "(left out)"
METRICS_S: Final = 10.0
_WORDS: Final = r"secret|passw|credential|token|authenticationuser|private"
_SECRET: Final = re.compile(_WORDS, re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    rf"""([\w.-]*(?:{_WORDS})[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&]+)""", re.IGNORECASE
)
_IN_URL: Final = re.compile(r"(://)[^/@\s]+@")


def without_secrets(text: str) -> str:
    """A text, or JSON, with what stands beside words such as `secretKey` left out, and who logs in by a URL."""
    try:
        return json.dumps(_cleaned(json.loads(text)), indent=2)
    except ValueError:
        return _IN_URL.sub(rf"\1{LEFT_OUT}@", _ASSIGNED.sub(rf"\1{LEFT_OUT}", text))


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        about = str(value.get("key", "")) if "value" in value else ""  # a row of a setting
        return {
            name: LEFT_OUT
            if part and _SECRET.search(about if name == "value" else str(name))
            else _cleaned(part)
            for name, part in value.items()
        }
    return without_secrets(value) if isinstance(value, str) else value


async def metrics(client: Client) -> dict[str, str]:
    """Ask each name server and broker for GET /metrics: its answer, or why it says nothing, by address."""
    tls, found = client.session.config.security.tls, {}
    table = (await client.session.run(cluster_info())).broker_addr_table
    brokers = {address for data in table.values() for address in data.broker_addrs.values()}
    for address in [*client.session.name_servers, *sorted(brokers)]:
        try:
            async with asyncio.timeout(METRICS_S):
                place = split_address(address)
                connection = await connect_http(*place, tls.context() if tls else None)
                answer = await connection.get("/metrics")
                connection.abort()
            found[address] = answer.body.decode(errors="replace")
        except (ClientError, RemoteProtocolError, OSError, EOFError) as error:
            found[address] = f"no metrics: {error!r}"
    return found
