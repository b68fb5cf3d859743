"""A schema registry's three answers that readers need: a schema by its id, a subject's newest one, a schema's references.

The interface is Confluent's (Apicurio serves it below /apis/ccompat/v7). Who asks is what the environment of the asking
process says: `ROQUETTE_REGISTRY_USER_INFO` (user:password), `ROQUETTE_REGISTRY_TOKEN`, `ROQUETTE_REGISTRY_CA` (a PEM file),
so that no secret stands in a command line, a table or a plan.
"""

import base64
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roquette.errors import ConfigError, ConnectError, RoquetteError
from roquette_spark.proto_text import descriptors_of_text

KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
MAX_ANSWER: Final = 4 << 20  # bytes
TIMEOUT_S: Final = 10.0
_DEEPEST: Final = 20  # references of references


class UnknownSchema(RoquetteError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema.

    Attributes:
        kind: one of KINDS.
        text: the schema itself.
        references: texts of those it names, each after what it names itself.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()


class Registry:
    """Asks one registry; what it answered is kept, since a schema never changes.

    Args:
        url: http or https, without a user in it.

    Raises:
        ConfigError: the address or the environment cannot be used.
    """

    def __init__(self, url: str, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the registry {url!r} is no address such as http://registry:8081")
        if parts.username or parts.password:
            raise ConfigError(
                "the registry's address must not hold a user: set ROQUETTE_REGISTRY_USER_INFO=user:password"
            )
        self.url = url.rstrip("/")
        self._headers = {"Accept": "application/json", **_authorization(environ)}
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=_trust(environ)), _NoRedirect()
        )
        self._known: dict[int, Schema] = {}

    def schema(self, schema_id: int) -> Schema:
        """The schema of an id.

        Raises:
            UnknownSchema: there is none. ConnectError: the registry does not answer. ConfigError: it refuses.
        """
        if schema_id not in self._known:
            self._known[schema_id] = self._schema(self._get(f"schemas/ids/{schema_id}"))
        return self._known[schema_id]

    def latest(self, subject: str) -> Schema:
        """The newest schema of a subject. Raises as `schema` does."""
        return self._schema(self._version(subject, "latest"))

    def descriptors(self, schema_id: int) -> list[bytes]:
        """Serialized FileDescriptorProto of a Protobuf schema, each after those it imports.

        Confluent's registry gives them when asked; of others (Apicurio's answer is no base64) the texts are compiled here.
        Raises as `schema`, and UnusableProto for a text that does not compile.
        """
        answer = self._get(f"schemas/ids/{schema_id}?format=serialized")
        named = self._referenced_schemas(answer, "?format=serialized", 1)
        found = [*(text for _, text in named), str(answer.get("schema"))]
        try:
            return [base64.b64decode(each, validate=True) for each in dict.fromkeys(found)]
        except ValueError:
            answer = self._get(f"schemas/ids/{schema_id}")
            return descriptors_of_text(
                str(answer.get("schema")), dict(self._referenced_schemas(answer, "", 1))
            )

    def descriptors_of(self, subject: str) -> list[bytes]:
        """Those of the newest schema of a subject."""
        return self.descriptors(int(self._version(subject, "latest").get("id", -1)))

    def _version(self, subject: str, version: object) -> dict[str, Any]:
        return self._get(f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")

    def _schema(self, answer: Mapping[str, Any]) -> Schema:
        kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        if kind not in KINDS or not isinstance(text, str):
            raise ConfigError(f"the registry {self.url} answers with a schema of type {kind!r}")
        return Schema(kind, text, self._references(answer, 1))

    def _references(self, answer: Mapping[str, Any], depth: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for _, text in self._referenced_schemas(answer, "", depth)))

    def _referenced_schemas(
        self, answer: Mapping[str, Any], form: str, depth: int
    ) -> list[tuple[str, str]]:
        """Names and texts of what a schema refers to, each after what it refers to itself."""
        if depth > _DEEPEST:
            raise ConfigError(f"the registry {self.url} has references that do not end")
        found: list[tuple[str, str]] = []
        for each in answer.get("references") or ():
            named = self._version(str(each.get("subject")), f"{each.get('version')}{form}")
            found += self._referenced_schemas(named, form, depth + 1)
            found.append((str(each.get("name")), str(named.get("schema"))))
        return found

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/{path}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(MAX_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise self._refused(path, error.code) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ConnectError(f"the registry {self.url} does not answer: {reason}") from None
        try:
            found = json.loads(data) if len(data) <= MAX_ANSWER else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigError(f"the registry {self.url} answers {path} with no JSON object")
        return found

    def _refused(self, path: str, status: int) -> RoquetteError:
        if status == 404:
            return UnknownSchema(f"the registry {self.url} has no {path}")
        if status in (401, 403):
            return ConfigError(
                f"the registry {self.url} refuses {path} ({status}): set ROQUETTE_REGISTRY_USER_INFO=user:password "
                "or ROQUETTE_REGISTRY_TOKEN, for executors too"
            )
        if status in (429, *range(500, 600)):
            return ConnectError(f"the registry {self.url} cannot answer now ({status})")
        return ConfigError(f"the registry {self.url} answers {path} with status {status}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refusal of redirects: credentials go to the one address that was given."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _authorization(environ: Mapping[str, str]) -> dict[str, str]:
    user, token = environ.get("ROQUETTE_REGISTRY_USER_INFO"), environ.get("ROQUETTE_REGISTRY_TOKEN")
    if user and token:
        raise ConfigError("give ROQUETTE_REGISTRY_USER_INFO or ROQUETTE_REGISTRY_TOKEN, not both")
    if user:
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _trust(environ: Mapping[str, str]) -> ssl.SSLContext:
    path = environ.get("ROQUETTE_REGISTRY_CA")
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ROQUETTE_REGISTRY_CA={path} cannot be read: {error}") from None
