"""Values of a handler's parameters: the message, the client, a typed value of the body, things of the lifespan.

JSON is decoded by msgspec (dict, list, dataclass, TypedDict, Struct, numbers, unions of them); pydantic's models by
pydantic, which is installed where there is one: nothing here imports it before.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from roquette.client.client import Client
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage

Decode = Callable[[bytes], Any]
Things = Mapping[str, object] | object

_NAMED = inspect.Parameter.KEYWORD_ONLY
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_FOR_PYDANTIC = ("pydantic", "annotated_types")


class CannotDecode(Exception):
    """A body is not what the handler asks for; its cause is the decoder's error."""


class _Place(NamedTuple):
    """A parameter, and what it is served: "message", "client", "value", or "thing" of the lifespan."""

    name: str
    kind: str
    hint: Any
    named: bool
    needed: bool


class Parameters:
    """Parameters of one function, and the value that each of them gets.

    Args:
        decode: makes the value of a body; None: by the annotation.
        many: it takes lists: of messages, and of their values.
        waits: it is a coroutine function: it gets the client, others the blocking one.

    Raises:
        ConfigError: a parameter cannot be served: says which, and why.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        decode: Decode | None = None,
        *,
        many: bool = False,
        waits: bool = True,
    ) -> None:
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self._decode = decode
        self._many = many
        self._waits = waits
        self._places: list[_Place] = []
        hints = _hints(function, self.name)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in _MANY:
                raise ConfigError(f"handler {self.name} cannot have *{parameter.name}")
            self._places.append(self._place(parameter, hints.get(parameter.name)))

    def _place(self, parameter: inspect.Parameter, hint: Any) -> _Place:
        named, name = parameter.kind is _NAMED, parameter.name
        kind = self._kind(name, hint, named)
        return _Place(name, kind, hint, named, parameter.default is inspect.Parameter.empty)

    def _kind(self, name: str, hint: Any, named: bool) -> str:
        plain = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        first = hint is None and not self._places and self._decode is None
        if first and not named:
            return "message"
        if plain == (list[ReceivedMessage] if self._many else ReceivedMessage):
            return "message"
        if (made := typing.get_origin(plain) or plain) is Client or _is_twin(made):
            if (made is Client) is not self._waits:
                form, wanted = ("a", "roquette") if self._waits else ("no", "roquette.sync")
                raise ConfigError(
                    f"handler {self.name} is {form} coroutine function: its {name} is a {wanted}.Client"
                )
            return "client"
        if named:
            return "thing"
        if any(place.kind == "value" for place in self._places):
            raise ConfigError(
                f"handler {self.name} asks for two values of one message: what is {name}? "
                "Things of the lifespan go behind a *"
            )
        if self._many and self._decode is None:
            if typing.get_origin(plain) is not list:
                raise ConfigError(
                    f"handler {self.name} takes batches: its {name} is a list, such as list[dict]"
                )
            (hint,) = typing.get_args(plain)
        if self._decode is None:
            self._decode = decoder_of(hint, f"{name} of handler {self.name}")
        return "value"

    def things(self, given: Things) -> dict[str, object]:
        """Return what the lifespan has for the function: by name of a mapping, else what it gave if that is of the wanted type.

        Raises:
            ConfigError: something is not there.
        """
        found: dict[str, object] = {}
        missing: list[str] = []
        for place in self._places:
            if place.kind != "thing":
                continue
            if isinstance(given, Mapping):
                if place.name in given:
                    found[place.name] = given[place.name]
                    continue
            elif isinstance(place.hint, type) and isinstance(given, place.hint):
                found[place.name] = given
                continue
            if place.needed:
                missing.append(place.name)
        if missing:
            raise ConfigError(
                f"handler {self.name} asks for {', '.join(missing)}, which the lifespan does not give"
            )
        return found

    def clients(self, client: Client) -> dict[str, object]:
        """The client, under the names that ask for it."""
        names = [place.name for place in self._places if place.kind == "client"]
        return dict.fromkeys(names, client if self._waits else _lend(client)) if names else {}

    def words(
        self, kept: Mapping[str, object], message: object, value: object
    ) -> tuple[list[Any], dict[str, Any]]:
        """Its positional and keyword arguments.

        Args:
            kept: what it gets in each call: `things` and `clients`.
            message, value: of this one, or lists of them.
        """
        of_message = {"message": message, "value": value}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for place in self._places:
            if place.kind in of_message:
                given = of_message[place.kind]
            elif place.name in kept:
                given = kept[place.name]
            else:
                continue  # it has a default
            if place.named:
                named[place.name] = given
            else:
                positional.append(given)
        return positional, named

    def value(self, body: bytes) -> Any:
        """Decode a body for the parameter that asks for its value; None if none does. Raises CannotDecode."""
        if self._decode is None:
            return None
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
    """Return the decoder that makes a value of the annotated type from a body; raises ConfigError: nothing here does."""
    if hint is None or hint is Any:
        raise ConfigError(f"{where} has no type: say bytes, str, dict or a class of yours")
    if hint is bytes:
        return bytes
    if hint is str:
        return bytes.decode
    if _is_model(hint):
        return typing.cast(Decode, hint.model_validate_json)
    if _asks_pydantic(hint):
        return typing.cast(Decode, sys.modules["pydantic"].TypeAdapter(hint).validate_json)
    try:
        kind = msgspec.inspect.type_info(hint)
        if not isinstance(kind, msgspec.inspect.CustomType):
            return msgspec.json.Decoder(hint, dec_hook=_foreign).decode
    except TypeError as error:
        raise ConfigError(f"{where} cannot be made of JSON: {error}") from None
    raise ConfigError(f"{where} cannot be made of JSON: give decode=, which makes it of the body")


def _is_twin(kind: object) -> bool:
    module = sys.modules.get("roquette.client.blocking_client")  # else nobody has named it
    return module is not None and kind is module.Client


def _lend(client: Client) -> object:
    from roquette.client.blocking_client import Client as Twin  # where it was named

    return Twin._lend(client)


def _is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # else nobody has made a model
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _asks_pydantic(hint: Any) -> bool:
    """Return True when an annotation says something that pydantic alone understands, or is of one of its models."""
    if typing.get_origin(hint) is not typing.Annotated:
        return False
    kind, *arguments = typing.get_args(hint)
    modules = {type(each).__module__.partition(".")[0] for each in arguments}
    return "pydantic" in sys.modules and (_is_model(kind) or not modules.isdisjoint(_FOR_PYDANTIC))


def _foreign(kind: type, value: Any) -> Any:
    """A class within a value that msgspec does not know."""
    if _is_model(kind):
        return typing.cast(Any, kind).model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be made of JSON")
