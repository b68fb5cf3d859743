"""Settings: Apache's property files, the environment, flags, and what is said when they are wrong."""

import enum
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.base.config import (
    NO_FOREIGN_KEYS,
    ForeignKeys,
    Sources,
    env_key,
    load,
    to_properties,
    with_changes,
)
from roquette.base.foreign_keys import BROKER, NAMESRV, PROXY
from roquette.base.options import option
from roquette.base.property_files import format_properties, parse_properties
from roquette.broker.floor.config import BrokerConfig
from roquette.errors import ConfigError
from roquette.nameserver.floor.config import NamesrvConfig

GUIDE = "as docs/howto/three-machines.md shows"


class Mode(enum.Enum):
    FAST = "FAST"
    SAFE = "SAFE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    port: int = option(9876, name="listenPort", help="A port.")
    name: str | None = option(None, name="brokerName", help="A name.")
    on: bool = option(False, name="enableThis", help="A switch.", mutable=True)
    mode: Mode = option(Mode.FAST, name="flushMode", help="A mode.", mutable=True)
    share: float = option(0.5, help="A share.")
    address: str = option("x", name="brokerIP1", help="An address.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    depth: int = option(3, help="A depth.")


def one(text: str = "", **more: object) -> Sample:
    (config,), _ = load((Sample,), Sources(file_text=text, **more))  # type: ignore[arg-type]
    return config  # type: ignore[no-any-return]


def test_defaults() -> None:
    assert one() == Sample()


def test_every_source_beats_the_one_before() -> None:
    file = "listenPort=1\nbrokerName=file\nenableThis=true"
    environ = {"ROQUETTE_BROKER_NAME": "env", "ROQUETTE_ENABLE_THIS": "false", "PATH": "/bin"}
    config = one(file, environ=environ, overrides={"enableThis": "true"})
    assert (config.port, config.name, config.on) == (1, "env", True)


def test_one_source_fills_several_classes() -> None:
    (sample, other), warnings = load((Sample, Other), Sources(file_text="depth=7\nlistenPort=1"))
    assert (sample.port, other.depth, warnings) == (1, 7, [])


def test_unknown_keys_warn_with_the_nearest_known_one() -> None:
    _, warnings = load(
        (Sample,),
        Sources(
            file_text="listenprt=1\nzzz=1\nforeign=1",
            file_name="broker.conf",
            overrides={"enableThat": "1"},
        ),
        ForeignKeys({}, {"foreign": "it is of another"}),
    )
    assert warnings == [
        "unknown key listenprt in broker.conf is ignored; did you mean listenPort?",
        "unknown key zzz in broker.conf is ignored",
        "foreign in broker.conf has no effect here: it is of another",
        "unknown key enableThat in --set is ignored; did you mean enableThis?",
    ]


@pytest.mark.promise(
    "Security", "access control of 1.0 is refused, with the command that takes it over"
)
@pytest.mark.parametrize("foreign", [BROKER, NAMESRV, PROXY])
def test_access_control_1_is_refused_with_the_command_that_takes_its_accounts_over(
    foreign: ForeignKeys,
) -> None:
    command = "`roquette acl import conf/plain_acl.yml`"
    for where, load_it in (
        (
            "server.conf",
            lambda text: load((), Sources(file_text=text, file_name="server.conf"), foreign),
        ),
        ("the request", lambda text: with_changes((), parse_properties(text), foreign)),
    ):
        with pytest.raises(ConfigError) as caught:
            load_it("aclFile=/etc/acl.yml\naclEnable=True")
        said = str(caught.value)
        assert said.startswith(f"aclEnable=True in {where}: say authenticationEnabled instead")
        assert command in said and "docs/howto/closed-cluster.md" in said
    assert load((), Sources(file_text="aclEnable=false"), foreign) == ([], [])


@pytest.mark.parametrize(
    ("key", "cls", "foreign", "said"),
    [
        ("enableSlaveActingMaster", BrokerConfig, BROKER, f"instead, {GUIDE}"),
        ("enableRemoteEscape", BrokerConfig, BROKER, f"instead, {GUIDE}"),
        ("supportActingMaster", NamesrvConfig, NAMESRV, f"instead, at the brokers, {GUIDE}"),
    ],
)
def test_acting_masters_are_refused_in_words_that_say_what_to_use_instead(
    key: str, cls: type, foreign: ForeignKeys, said: str
) -> None:
    words = f"say enableControllerMode {said}"
    with pytest.raises(ConfigError) as caught:
        load((cls,), Sources(file_text=f"{key}=True", file_name="server.conf"), foreign)
    assert str(caught.value) == f"{key}=True in server.conf: {words}"
    assert load((cls,), Sources(file_text=f"{key}=false"), foreign) == ([cls()], [])
    with pytest.raises(ConfigError) as caught:
        with_changes((cls(),), {key: "true"}, foreign)
    assert str(caught.value) == f"{key}=true in the request: {words}"
    with pytest.raises(ConfigError, match="has no effect here; nothing was changed"):
        with_changes((cls(),), {key: "false"}, foreign)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "listenPort=many",
            "listenPort in broker.conf must be a whole number of at least 0, not 'many'",
        ),
        ("enableThis=yes", "enableThis in broker.conf must be true or false, not 'yes'"),
        ("flushMode=SLOW", "flushMode in broker.conf must be FAST or SAFE, not 'SLOW'"),
        ("share=half", "share in broker.conf must be a number of at least 0, not 'half'"),
        ("listenPort=-1", "must be a whole number of at least 0, not '-1'"),
    ],
)
def test_malformed_values_name_key_value_and_place(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(line, file_name="broker.conf")
    assert said in str(caught.value)


def test_properties_in_javas_forms() -> None:
    text = (
        "# comment\n! comment\n\n  a = 1\nb:2\nc 3\nlong=one \\\n   two\n"
        "path=C\\:\\\\store\nuni=\\u00e9\\t!\nempty=\nlast=x=y:z"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "long": "one two",
        "path": "C:\\store",
        "uni": "é\t!",
        "empty": "",
        "last": "x=y:z",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n  #b=2", {"a": "1#b=2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("\\\n#b=2", {}),
        ("a\\ b\\=c=d  ", {"a b=c": "d  "}),
        ("\ta\f=\fb\rc d", {"a": "b", "c": "d"}),
        ("a=1\x0bb=2\u2028c=3", {"a": "1\x0bb=2\u2028c=3"}),
        ("a = = b", {"a": "= b"}),
    ],
)
def test_corner_cases_of_properties_are_those_of_java(text: str, found: dict[str, str]) -> None:
    """As java.util.Properties reads them."""
    assert parse_properties(text) == found


@given(st.text(max_size=200))
def test_any_text_is_read_as_properties(text: str) -> None:
    assert all(isinstance(v, str) for v in parse_properties(text).values())


def test_environment_names() -> None:
    assert env_key("listenPort") == "ROQUETTE_LISTEN_PORT"
    assert env_key("brokerIP1") == "ROQUETTE_BROKER_IP1"
    assert one(environ={"ROQUETTE_BROKER_IP1": "10.0.0.1"}).address == "10.0.0.1"


def test_shown_as_apache_shows_them() -> None:
    shown = to_properties(Sample(on=True))
    assert shown == {
        "listenPort": "9876",
        "enableThis": "true",
        "flushMode": "FAST",
        "share": "0.5",
        "brokerIP1": "x",
    }
    assert format_properties({"a": "1", "b": "2"}) == "a=1\nb=2\n"
    assert one(format_properties(shown)) == Sample(on=True)


def test_only_mutable_settings_change_while_running() -> None:
    config = Sample()

    def update(config: Sample, changes: dict[str, str]) -> Sample:
        (found, other) = with_changes((config, Other()), changes, NO_FOREIGN_KEYS)
        assert other == Other()
        return found  # type: ignore[no-any-return]

    changed = update(config, {"enableThis": "true", "flushMode": "SAFE", "depth": "3"})
    assert (changed.on, changed.mode, config.on) == (True, Mode.SAFE, False)
    assert update(config, {"listenPort": "9876"}) is config, "the same value is no change"
    with pytest.raises(ConfigError, match="listenPort cannot be changed"):
        update(config, {"enableThis": "true", "listenPort": "1"})
    with pytest.raises(
        ConfigError, match="enableThis in the request must be true or false, not 'maybe'"
    ):
        update(config, {"enableThis": "maybe"})


def test_escapes_of_properties_are_utf_16() -> None:
    found = parse_properties("a=\\ud83d\\ude00\nb=x\\ud800y\nc=\\u4e2d")

    assert found == {"a": "\U0001f600", "b": "x\ufffdy", "c": "中"}
    assert format_properties(found).encode()
