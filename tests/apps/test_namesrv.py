"""The name server as people start it: ready line, settings from everywhere, SIGTERM, plain errors."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roquette.apps.namesrv import namesrv_settings, start_namesrv
from roquette.apps.running import listen_settings
from roquette.base.config import Sources
from roquette.errors import ConfigError
from roquette.nameserver.service import NameServer

MAIN = [sys.executable, "-c", "from roquette.apps.main import main; main()", "namesrv"]


def test_settings_come_from_file_environment_and_flags(caplog: pytest.LogCaptureFixture) -> None:
    config, *_ = namesrv_settings(
        Sources(
            file_text="listenPort=1\nenableTopicList=false\norderMessageEnable=true\nrocketmqHome=/opt\nlistenPrt=5\n",
            environ={
                "ROQUETTE_LISTEN_PORT": "2",
                "ROQUETTE_ORDER_MESSAGE_ENABLE": "false",
                "HOME": "/home/x",
            },
            overrides={"waitSecondsForService": "7", **listen_settings("10.1.1.1:4")},
        )
    )
    assert (config.bind_address, config.listen_port) == ("10.1.1.1", 4)
    assert config.enable_topic_list is False
    assert config.order_message_enable is False
    assert config.wait_seconds_for_service == 7
    assert not config.kv_config_path.startswith("~")
    assert "listenPrt" in caplog.text
    assert "did you mean listenPort?" in caplog.text
    assert "rocketmqHome in the config file has no effect here: " in caplog.text


def test_it_says_ready_serves_and_ends_cleanly(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*MAIN, "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready namesrv=127.0.0.1:")
            port = int(line.rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                head = b'{"code":105,"opaque":1,"extFields":{"topic":"T"}}'
                size = len(head)
                connection.sendall((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + head)
                assert b'"code":17' in connection.recv(4096)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out == "", "exactly one line on stdout"
    assert process.returncode == 0, err


def test_a_taken_port_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*MAIN, "--listen", f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_no_descriptor_is_left_for_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before: "cannot listen on ...: Too many open files", and not how many there may be."""

    async def start(server: NameServer) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(NameServer, "start", start)
    flags = {"kvConfigPath": f"{tmp_path}/kv.json"}
    settings = namesrv_settings(Sources(overrides=flags))
    with pytest.raises(ConfigError, match=r"may have \d+; raise its limit \(ulimit -n"):
        asyncio.run(start_namesrv(settings))
