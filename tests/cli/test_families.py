"""Groups moved at brokers of both kinds, and settings changed, against a real `roquette dev`."""

import asyncio
import json
from typing import Any

import pytest
from tests.cli.conftest import Roquette

from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError


def rows(roquette: Roquette, *words: str) -> Any:
    done = roquette(*words, "-o", "json")
    assert done.exit_code in (0, 10), (words, done.stderr, done.exception)
    return json.loads(done.stdout)


def fill(roquette: Roquette, topic: str, group: str) -> None:
    roquette("topic", "create", topic, "--queues", "1")
    roquette("produce", topic, *"abcdefghij")
    done = roquette("consume", topic, "--group", group, "--offset", "first", "-c", "10")
    assert done.exit_code == 0


@pytest.mark.parametrize("server_side", ["true", "false"])
def test_a_group_is_moved_online_and_offline(
    roquette: Roquette, namesrv: str, server_side: str
) -> None:
    """Also by brokers that tell members, as those before 5.0 do."""
    change = ("broker", "config", "set", f"useServerSideResetOffset={server_side}", "--all")
    assert rows(roquette, *change)["done"] == ["broker-a"]
    topic = f"side-{server_side}"
    fill(roquette, topic, topic)
    seek = ("group", "seek", topic, "--topic", topic, "--yes", "--to")
    assert rows(roquette, *seek, "4")[0]["error"] == ""
    assert rows(roquette, "group", "lag", topic, "--topic", topic)[0]["consumer_offset"] == 4

    async def online() -> None:
        got: list[bytes] = []
        async with Client(namesrv) as client:
            await client.subscribe(topic, group=topic, handler=lambda m: got.append(m.body))
            while len(got) < 6:
                await asyncio.sleep(0.02)
            if server_side == "false":
                refused = await asyncio.to_thread(roquette, *seek, "-2")
                assert "useServerSideResetOffset=true" in str(refused.exception)
            moved = await asyncio.to_thread(rows, roquette, *seek, "earliest")
            assert moved[0]["error"] == ""
            while len(got) < 16:
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(online(), 60))


def test_settings_are_shown_and_changed(roquette: Roquette, namesrv: str) -> None:
    (one,) = rows(roquette, "broker", "config", "get", "brokerName")
    assert one == {"server": "broker-a", "key": "brokerName", "value": "broker-a"}
    assert len(rows(roquette, "broker", "config", "get")) > 100
    (one,) = rows(roquette, "broker", "config", "get", "brokerVersionDesc", "--runtime")
    assert one["server"] == "broker-a" and one["value"].startswith("V5_")
    told = {row["key"] for row in rows(roquette, "broker", "config", "get", "--runtime")}
    assert {"bootTimestamp", "msgPutTotalTodayNow"} <= told and "brokerName" not in told
    (one,) = rows(roquette, "namesrv", "config", "get", "listenPort")
    assert one["server"] == namesrv
    assert rows(roquette, "namesrv", "config", "set", "orderMessageEnable=false")["failed"] == {}
    for words, text in (
        (("broker", "config", "get", "brokerNam"), "did you mean brokerName"),
        (("broker", "config", "set", "x"), "KEY=VALUE"),
        (("broker", "config", "set", "a=1", "a=2", "--all"), "twice"),
        (("broker", "config", "set", "a=1"), "--cluster NAME, or --all"),
        (("broker", "config", "get", "--broker", "b"), "knows no broker b"),
        (("broker", "config", "set", "--all", "brokerName=x"), "brokerName"),
        (("namesrv", "config", "set", "listenPort=1"), "black list"),
    ):
        error = roquette(*words).exception
        assert isinstance(error, ConfigError | ClientError) and text in str(error), words


def test_a_name_that_may_be_wrong_is_asked_about_and_whole_messages_have_every_form(
    roquette: Roquette,
) -> None:
    fill(roquette, "whole", "whole")
    typed = roquette("group", "seek", "wohle", "--topic", "whole", "--to", "first", "--dry-run")
    right = roquette("group", "seek", "whole", "--topic", "whole", "--to", "first", "--dry-run")

    assert "group wohle has read nothing of topic whole yet: is the name right?" in typed.stderr
    assert "is the name right" not in right.stderr
    place = ("msg", "get", "broker-a:0:3", "--topic", "whole")
    assert json.loads(roquette(*place).stdout)["body"] == "d"
    assert "body: d\n" in roquette(*place, "-o", "yaml").stdout
    assert roquette(*place, "-o", "csv").stdout.startswith("topic,broker,queue,offset,id,")
