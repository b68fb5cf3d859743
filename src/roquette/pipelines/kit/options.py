"""Options of a pipeline: one dataclass, filled from flags, then from a YAML or JSON file, then from defaults."""

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from roquette.base.files import Files
from roquette.errors import ConfigError

T = TypeVar("T")

DEFAULT_NAME_SERVERS = "127.0.0.1:9876"


def option(
    help: str,
    *,
    default: Any = dataclasses.MISSING,
    metavar: str = "",
    choices: Sequence[str] = (),
    least: float | None = None,
    split: bool = True,
    secret: bool = False,
) -> Any:
    """A field of an options class; without a default it is required.

    Args:
        help: one sentence for --help.
        choices: the only texts allowed.
        least: the smallest number allowed.
        split: whether the texts of a tuple may also be given with commas.
        secret: never shown in plans and reports.
    """
    metadata = {
        "help": help,
        "metavar": metavar,
        "choices": tuple(choices),
        "least": least,
        "split": split,
        "secret": secret,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """What every pipeline has."""

    namesrv: str = option(
        "Name servers; default is $NAMESRV_ADDR, else 127.0.0.1:9876.",
        default=DEFAULT_NAME_SERVERS,
        metavar='"NS1;NS2"',
    )
    report: str = option(
        "Directory for report.html, summary.json and spark.log; default is the next free "
        "pipeline-output/NAME-NNN.",
        default="",
        metavar="DIR",
    )
    master: str = option(
        "Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://...",
        default="local[*]",
        metavar="URL",
    )
    spark_conf: tuple[str, ...] = option(
        "A setting of Spark; may be repeated.", default=(), metavar="KEY=VALUE", split=False
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OptionField:
    """One option as the command line and the file see it.

    Attributes:
        kind: str, int, float or bool; `many` says that it is a tuple of texts.
        required: there is no default.
    """

    name: str
    kind: type
    many: bool
    required: bool
    default: Any
    help: str
    metavar: str
    choices: tuple[str, ...]
    least: float | None
    split: bool
    secret: bool

    @property
    def flag(self) -> str:
        """As the command line writes it."""
        return "--" + self.name.replace("_", "-")


def option_fields(cls: type[Any]) -> list[OptionField]:
    """The fields of an options class, in order: its own first, those of every pipeline last."""
    hints = typing.get_type_hints(cls)
    common = {field.name for field in dataclasses.fields(PipelineOptions)}
    found = []
    for field in sorted(dataclasses.fields(cls), key=lambda field: field.name in common):
        kind, many = _kind_of(hints[field.name])
        found.append(
            OptionField(
                name=field.name,
                kind=kind,
                many=many,
                required=field.default is dataclasses.MISSING,
                default=None if field.default is dataclasses.MISSING else field.default,
                **field.metadata,
            )
        )
    return found


def _kind_of(hint: Any) -> tuple[type, bool]:
    """The plain type behind a hint, and whether there are many. `X | None` counts as X."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        assert typing.get_args(hint) == (str, ...), hint
        return str, True
    assert hint in (str, int, float, bool), hint
    return hint, False


def load_options(
    cls: type[T], flags: Mapping[str, Any], file: Mapping[str, Any], *, where: str
) -> T:
    """An instance from flags (None is not given) over a file's values over defaults.

    Args:
        where: the pipeline's name, for messages.

    Raises:
        ConfigError: an option is unknown, missing, or not of its kind: which, and what to do.
    """
    fields = {field.name: field for field in option_fields(cls)}
    values: dict[str, Any] = {}
    for key, value in file.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise ConfigError(f"{where}: unknown option {key} in the file{_hint(name, fields)}")
        if value is not None:
            values[name] = _checked(fields[name], value, where)
    for name, value in flags.items():
        if name not in fields:
            raise ConfigError(f"{where}: unknown option {name}{_hint(name, fields)}")
        if value is not None:
            values[name] = _checked(fields[name], value, where)
    for field in fields.values():
        if field.required and field.name not in values:
            raise ConfigError(
                f"{where}: {field.flag} is required (or {field.name}: in the file of --config)"
            )
    return cls(**values)


def _hint(name: str, fields: Mapping[str, OptionField]) -> str:
    close = difflib.get_close_matches(name, fields, 1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(fields))}"


def _checked(field: OptionField, value: Any, where: str) -> Any:
    if field.many:
        return _texts(field, value, where)
    wanted: tuple[type, ...] = (int, float) if field.kind is float else (field.kind,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and field.kind is not bool):
        words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{where}: {field.flag} must be {words[field.kind]}, not {value!r}")
    if field.choices and value not in field.choices:
        raise ConfigError(f"{where}: {field.flag} {value} is none of: {', '.join(field.choices)}")
    number: Any = value
    if field.least is not None and number < field.least:
        raise ConfigError(f"{where}: {field.flag} must be at least {field.least}, not {value}")
    return float(number) if field.kind is float else value


def _texts(field: OptionField, value: Any, where: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ConfigError(f"{where}: {field.flag} must be a text or a list of texts, not {value!r}")
    words = [word for each in given for word in (each.split(",") if field.split else [each])]
    found = tuple(word.strip() for word in words if word.strip())
    if field.required and not found:
        raise ConfigError(f"{where}: {field.flag} is empty")
    return found


def read_options_file(path: str, files: Files) -> dict[str, Any]:
    """The options of a YAML or (by its name) JSON file.

    Raises:
        ConfigError: it cannot be read, or is no mapping of names to values.
    """
    try:
        text = files.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} of --config cannot be read: {error}") from None
    try:
        found = json.loads(text) if path.endswith(".json") else _yaml(text)
    except ValueError as error:
        raise ConfigError(f"the file {path} is malformed: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the file {path} has no lines of the form option: value")
    return found


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            'a YAML file needs PyYAML: pip install "roquette[spark]", or write the file as JSON'
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def shown_options(options: Any) -> dict[str, Any]:
    """Options for people's eyes: secrets replaced."""
    return {
        field.name: "***"
        if field.secret and getattr(options, field.name)
        else getattr(options, field.name)
        for field in option_fields(type(options))
    }
