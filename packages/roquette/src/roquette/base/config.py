"""Settings of servers: options classes filled from Apache's property files, the environment and flags.

Order: defaults < file < environment < overrides.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from roquette.base.options import did_you_mean, options_of
from roquette.base.property_files import parse_properties
from roquette.errors import ConfigError

C = TypeVar("C")
MAX_SETTINGS = 32 << 10  # bytes of settings in one request
_MAX_NAME = 100  # characters of an unknown key in a refusal: it may be any bytes of a peer


@dataclasses.dataclass(frozen=True, slots=True)
class Unserved:
    """A key of Apache's that changes a guarantee and is not served here.

    harmless: values that ask for nothing (compared without case). meaning: what any other value asks for.
    instead: the key that says the same here, or asks for what is better, if there is one.
    how: where that key is set, or what shows it.
    """

    harmless: frozenset[str]
    meaning: str
    instead: str = ""
    how: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignKeys:
    """Apache's keys that no config class has: those refused, and those without effect with the reason why.

    fixed: begins keys that other classes have, and that no request changes.
    """

    refused: Mapping[str, Unserved]
    idle: Mapping[str, str]
    fixed: tuple[str, ...] = ()

    def refuse(self, key: str, text: str, where: str) -> None:
        """Raise ConfigError when a value asks for a guarantee that is not given."""
        asked = self.refused.get(key)
        if asked is not None and text.strip().lower() not in asked.harmless:
            if asked.instead:
                how = f", {asked.how}" if asked.how else ""
                raise ConfigError(
                    f"{key}={text.strip()} in {where}: say {asked.instead} instead{how}"
                )
            raise ConfigError(
                f"{key}={text.strip()} in {where} asks for {asked.meaning}, which Roquette does not have: "
                f"remove the key, or nothing would keep what it promises"
            )

    def refuse_change(self, key: str, where: str) -> None:
        """Raise ConfigError for a key that a change of would do nothing: no change is no success."""
        if key.startswith(self.fixed):
            raise ConfigError(
                f"{key} cannot be changed while the process runs: set it in the file and restart"
            )
        if key in self.idle or key in self.refused:
            why = f": {self.idle[key]}" if key in self.idle else ""
            raise ConfigError(f"{key} in {where} has no effect here{why}; nothing was changed")


NO_FOREIGN_KEYS = ForeignKeys({}, {})


def env_key(java: str) -> str:
    """The environment variable of a Java key: ROQUETTE_ and upper snake case, dots as underscores."""
    out = "".join(
        f"_{c}" if c.isupper() and i and not java[i - 1].isupper() else c
        for i, c in enumerate(java)
    )
    return "ROQUETTE_" + out.upper().replace(".", "_")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of settings, the later before the earlier: a property file, more of them, the environment, flags.

    more_files: name -> text.
    """

    file_text: str = ""
    file_name: str = "the config file"
    more_files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)


def load(
    classes: Iterable[type[Any]], sources: Sources, foreign: ForeignKeys = NO_FOREIGN_KEYS
) -> tuple[list[Any], list[str]]:
    """Build one instance of each options class.

    Args:
        foreign: keys that are refused, and those without effect.

    Returns:
        The instances in the order of `classes`, and warnings (a sentence each) about keys without effect and unknown ones.

    Raises:
        ConfigError: a value does not fit its key, or asks for what is not served.
    """
    owners = {key: (cls, known) for cls in classes for key, known in options_of(cls).items()}
    values: dict[type[Any], dict[str, Any]] = {cls: {} for cls in classes}
    warnings: list[str] = []

    def take(key: str, text: str, where: str) -> None:
        foreign.refuse(key, text, where)
        if key in owners:
            cls, known = owners[key]
            values[cls][known.field] = known.read(text, f"{key} in {where}")
        elif key in foreign.idle:
            warnings.append(f"{key} in {where} has no effect here: {foreign.idle[key]}")
        elif key not in foreign.refused:
            warnings.append(f"unknown key {key} in {where} is ignored{did_you_mean(key, owners)}")

    for name, lines in ((sources.file_name, sources.file_text), *sources.more_files.items()):
        for key, text in parse_properties(lines).items():
            take(key, text, name)
    by_env = {env_key(key): key for key in owners}
    for name, text in sorted(sources.environ.items()):
        if name in by_env:
            take(by_env[name], text, f"environment variable {name}")
    for key, text in sources.overrides.items():
        if key in owners and owners[key][1].secret:
            raise ConfigError(
                f"{key} is secret, and all users of a machine see its command lines: "
                f"set it in the properties file or in the environment variable {env_key(key)}"
            )
        take(key, text, "--set")
    return [cls(**values[cls]) for cls in classes], warnings


def to_properties(config: Any) -> dict[str, str]:
    """A config under Apache's keys, as GET_*_CONFIG answers; None and what is secret is left out."""
    values = [(known, getattr(config, known.field)) for known in options_of(type(config)).values()]
    return {
        known.name: known.text(value)
        for known, value in values
        if value is not None and not known.secret
    }


def read_changes(body: bytes) -> dict[str, str]:
    """The settings in the body of an UPDATE_*_CONFIG; raises ConfigError when it is too long, or no text."""
    if len(body) > MAX_SETTINGS:
        raise ConfigError(f"settings of {len(body)} bytes, {MAX_SETTINGS} are allowed at once")
    try:
        return parse_properties(body.decode())
    except UnicodeDecodeError:
        raise ConfigError("the body is not properties text in UTF-8") from None


def with_changes(
    configs: tuple[Any, ...], changes: Mapping[str, str], foreign: ForeignKeys
) -> tuple[Any, ...]:
    """Copies of `configs` with all of `changes` applied; a config that stays the same is the same object.

    Raises:
        ConfigError: a key is unknown or without effect, may not change while the process runs, or its value
            does not fit: a change that does nothing is no success.
    """
    where = "the request"
    known = [key for config in configs for key in options_of(type(config))]
    for key, text in changes.items():
        foreign.refuse(key, text, where)
    for key in changes:
        if key not in known:
            foreign.refuse_change(key, where)
            shown = key if len(key) <= _MAX_NAME else f"{key[:_MAX_NAME]}..."
            hint = did_you_mean(key, known)
            raise ConfigError(f"unknown key {shown} in {where}{hint}; nothing was changed")
    return tuple(_update(config, changes, where) for config in configs)


def _update(config: C, changes: Mapping[str, str], where: str) -> C:
    values: dict[str, Any] = {}
    for key, known in options_of(type(config)).items():
        if key not in changes:
            continue
        value = known.read(changes[key], f"{key} in {where}")
        if value == getattr(config, known.field):
            continue
        if not known.mutable:
            raise ConfigError(
                f"{key} cannot be changed while the process runs: set it in the file and restart"
            )
        values[known.field] = value
    return dataclasses.replace(config, **values) if values else config  # type: ignore[type-var]
