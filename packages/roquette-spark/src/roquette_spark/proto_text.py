"""Descriptors of `.proto` texts, by Google's own compiler (the extra `registry`): for registries that give schemas only as text."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from roquette.errors import ConfigError

TIMEOUT_S: Final = 20.0
_SAID = re.compile(r"^\S+\.proto(?::\d+:\d+)?: .*$", re.MULTILINE)
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
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnusableProto("the Protobuf schema takes too long to compile") from None
    if done.returncode:
        said = "; ".join(_SAID.findall(done.stderr)) or " ".join(done.stderr.split())
        raise UnusableProto(f"the Protobuf schema cannot be used: {said[:_LONGEST]}")
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
