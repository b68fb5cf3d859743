"""Values as bodies: JSON, as applications' decoders read it."""

from typing import Any

import msgspec


def to_json(value: object) -> bytes:
    """JSON of a dict, list, dataclass, TypedDict, msgspec.Struct, pydantic's model, number, date or of what has such in it.

    Raises:
        TypeError: it, or something in it, is none of these.
    """
    return msgspec.json.encode(value, enc_hook=_foreign)


def _foreign(value: Any) -> object:
    """Return a value that msgspec does not know as one that it does."""
    if hasattr(type(value), "model_dump"):  # pydantic's, which nothing here imports
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be made into JSON: {value!r:.80}")
