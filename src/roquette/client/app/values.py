"""What a handler's parameters ask for: the message, the client, a typed value of the body, things by name.

JSON is decoded by msgspec (dict, list, dataclass, TypedDict, Struct, numbers, unions of them); pydantic's models by
pydantic, which is installed where there is one: nothing here imports it before.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from roquette.client.client import Client
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage

Decode = Callable[[bytes], Any]

_NAMED = inspect.Parameter.KEYWORD_ONLY
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CannotDecode(Exception):
    """A body is not what the handler asks for; its cause is the decoder's error."""


class Parameters:
    """How one handler is called.

    Args:
        decode: makes the value of a body; None: by the annotation.

    Raises:
        ConfigError: a parameter cannot be served: says which, and why.
    """

    def __init__(self, function: Callable[..., Any], decode: Decode | None = None) -> None:
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self._decode = decode
        self._kinds: list[str] = []
        self._names: list[str] = []
        self._optional: list[str] = []
        hints = _hints(function, self.name)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in _MANY:
                raise ConfigError(f"handler {self.name} cannot have *{parameter.name}")
            if parameter.kind is _NAMED:
                needed = parameter.default is inspect.Parameter.empty
                (self._names if needed else self._optional).append(parameter.name)
            else:
                self._kinds.append(self._kind(parameter.name, hints.get(parameter.name)))

    def _kind(self, name: str, hint: Any) -> str:
        if hint is ReceivedMessage or (hint is None and not self._kinds and self._decode is None):
            return "message"
        if hint is Client:
            return "client"
        if "value" in self._kinds:
            raise ConfigError(
                f"handler {self.name} asks for two values of one message: what is {name}? "
                "Things of the lifespan go behind a *"
            )
        if self._decode is None:
            self._decode = decoder_of(hint, f"{name} of handler {self.name}")
        return "value"

    def missing(self, things: Mapping[str, object]) -> list[str]:
        """The names it asks for that are not there."""
        return [name for name in self._names if name not in things]

    def named(self, things: Mapping[str, object]) -> dict[str, object]:
        """Its keyword arguments."""
        return {n: things[n] for n in (*self._names, *self._optional) if n in things}

    def values(self, message: ReceivedMessage, client: Client) -> list[Any]:
        """Its positional arguments. Raises CannotDecode."""
        found: list[Any] = []
        for kind in self._kinds:
            if kind == "message":
                found.append(message)
            elif kind == "client":
                found.append(client)
            else:
                found.append(self._value(message.body))
        return found

    def _value(self, body: bytes) -> Any:
        assert self._decode is not None
        try:
            return self._decode(body)
        except Exception as error:
            raise CannotDecode(f"{type(error).__name__}: {error}"[:500]) from error


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    plain = inspect.isfunction(function) or inspect.ismethod(function)
    try:
        return typing.get_type_hints(
            function if plain else type(function).__call__, include_extras=True
        )
    except NameError as error:
        raise ConfigError(
            f"an annotation of handler {name} is unknown where it is defined: {error}"
        ) from None


def decoder_of(hint: Any, where: str) -> Decode:
    """What makes a value of the annotated type of a body; raises ConfigError: nothing here does."""
    if hint is None or hint is Any:
        raise ConfigError(f"{where} has no type: say bytes, str, dict or a class of yours")
    if hint is bytes:
        return bytes
    if hint is str:
        return bytes.decode
    if _is_model(hint):
        return typing.cast(Decode, hint.model_validate_json)
    try:
        kind = msgspec.inspect.type_info(hint)
        if not isinstance(kind, msgspec.inspect.CustomType):
            return msgspec.json.Decoder(hint, dec_hook=_foreign).decode
    except TypeError as error:
        raise ConfigError(f"{where} cannot be made of JSON: {error}") from None
    raise ConfigError(f"{where} cannot be made of JSON: give decode=, which makes it of the body")


def _is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # else nobody has made a model
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _foreign(kind: type, value: Any) -> Any:
    """A class within a value that msgspec does not know."""
    if _is_model(kind):
        return typing.cast(Any, kind).model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be made of JSON")
