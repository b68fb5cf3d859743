"""The console as people start it: `roquette dev` says where it is; static files; ends while a tail is open."""

import hashlib
import re
import signal
import threading
import urllib.request
from pathlib import Path

import pytest
from tests.apps.test_dev_and_broker import process

from roquette.apps.console import address_of
from roquette.console.app import STATIC, ConsoleSettings
from roquette.errors import ConfigError

NOTICE = (Path(__file__).resolve().parents[2] / "NOTICE").read_text()


def test_dev_says_where_its_console_is_and_ends_with_a_tail_open() -> None:
    with process(
        "dev", "--namesrv-port", "0", "--broker-port", "0", "--console-port", str(_free())
    ) as child:
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith(("Web console", "No web console")):
                break
        found = re.search(r"Web console: (http://127.0.0.1:\d+/)", lines[-1])
        assert found, lines
        with urllib.request.urlopen(found[1], timeout=30) as answer:
            assert answer.url.endswith("/c/dev/") and b"Overview" in answer.read()
        for name in ("console.css", "console.js", "idiomorph.js", "icon.svg"):
            with urllib.request.urlopen(f"{found[1]}static/{name}", timeout=30) as answer:
                assert answer.status == 200 and answer.headers["content-security-policy"]
        tail = urllib.request.urlopen(f"{found[1]}c/dev/topics/TBW102/stream", timeout=30)
        reading = threading.Thread(target=tail.read, daemon=True)
        reading.start()
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
        assert "Traceback" not in child.stderr.read()


def test_the_verb_takes_name_servers_as_every_command_does() -> None:
    with process("console", "-n", "127.0.0.1:1", "--listen", "127.0.0.1:0") as child:
        assert child.stdout.readline().startswith("ready console=http://127.0.0.1:")
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def _free() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_files_of_others_are_those_that_the_notice_names() -> None:
    digest = hashlib.sha256((STATIC / "idiomorph.js").read_bytes()).hexdigest()
    assert digest in NOTICE
    assert sorted(path.name for path in STATIC.iterdir()) == [
        "console.css",
        "console.js",
        "icon.svg",
        "idiomorph.js",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:8082"}, "needs --sign-in"),
        ({"listen": "10.0.0.1:8082", "sign_in": True}, "needs --tls-cert"),
        ({"listen": "8082"}, "not of the form HOST:PORT"),
        ({"listen": "127.0.0.1:x"}, "not of the form HOST:PORT"),
        ({"tls_cert": "a.pem"}, "go together"),
        ({"behind_proxy": ("proxy",)}, "is no network"),
    ],
)
def test_what_no_console_may_do_is_refused_before_anything(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        address_of(ConsoleSettings(**options))


def test_beyond_this_machine_it_is_closed() -> None:
    closed = ConsoleSettings(listen="[::]:0", sign_in=True, behind_proxy=("10.0.0.0/8",))
    assert address_of(closed) == ("::", 0)
    assert address_of(ConsoleSettings()) == ("127.0.0.1", 8082)
