"""A schema registry's three answers that readers need: a schema by its id, a subject's newest one, a schema's references.

The interface is Confluent's (Apicurio serves it below /apis/ccompat/v7). Who asks is what the environment of the asking
process says: `ROQUETTE_REGISTRY_USER_INFO` (user:password), `ROQUETTE_REGISTRY_TOKEN`, `ROQUETTE_REGISTRY_CA` (a PEM file),
so that no secret stands in a command line, a table or a plan.
"""

import base64
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from roquette.errors import ConfigError, ConnectError, RoquetteError

# Descriptors of `.proto` texts, by Google's own compiler (the extra `registry`): for registries that give schemas only as text.


COMPILER_TIMEOUT_S: Final = 20.0
_ERROR = re.compile(r"^\S+\.proto(?::\d+:\d+)?: .*$", re.MULTILINE)
_MAIN: Final = "roquette-schema.proto"
_LONGEST: Final = 300  # characters of what the compiler says


class UnusableProto(ConfigError):
    """A registered text that is no schema."""


def descriptors_of_text(text: str, imports: Mapping[str, str]) -> list[bytes]:
    """Serialized FileDescriptorProto of a text, each after those it imports.

    Files are read from a directory of this call alone, and from Google's own types, never by a name that somebody registered.

    Args:
        imports: texts by the names by which others import them.

    Raises:
        ConfigError: the compiler is not installed. UnusableProto: it refuses the text; a name leads out of the directory.
    """
    if find_spec("grpc_tools") is None:
        raise ConfigError(
            'Protobuf schemas as texts need their compiler: pip install "roquette[registry]"'
        )
    with tempfile.TemporaryDirectory(prefix="roquette-proto-") as folder:
        for name, content in {**imports, _MAIN: text}.items():
            _write(folder, name, content)
        return _compile(folder)


def _write(folder: str, name: str, content: str) -> None:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts) or any(c in name for c in '\\:\0"'):
        raise UnusableProto(f"the Protobuf schema has an import of the unusable name {name!r:.100}")
    try:
        path = os.path.join(folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    except (OSError, UnicodeEncodeError) as error:  # too long, a directory, half a surrogate pair
        raise UnusableProto(f"the Protobuf schema {name:.100} cannot be kept: {error}") from None


def _compile(folder: str) -> list[bytes]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    out = os.path.join(folder, "roquette-descriptors")
    words = ["-m", "grpc_tools.protoc", f"-I{folder}", *_google_types()]
    words += ["--include_imports", f"--descriptor_set_out={out}", _MAIN]
    try:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnusableProto("the Protobuf schema takes too long to compile") from None
    if done.returncode:
        errors = "; ".join(_ERROR.findall(done.stderr)) or " ".join(done.stderr.split())
        raise UnusableProto(f"the Protobuf schema cannot be used: {errors[:_LONGEST]}")
    with open(out, "rb") as file:
        found = FileDescriptorSet.FromString(file.read())
    return [each.SerializeToString() for each in found.file]


def _google_types() -> list[str]:
    """Return the directory of google/protobuf, and google/type if its package is there."""
    places = []
    for package, above, below in (("grpc_tools", 0, "_proto"), ("google.rpc", 2, "")):
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            continue
        for place in (found.submodule_search_locations or ()) if found else ():
            for _ in range(above):
                place = os.path.dirname(place)
            places.append(f"-I{os.path.join(place, below)}")
    return places


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
