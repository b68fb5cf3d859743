"""Our broker answers raw requests of the v5 protocol as Apache's proxy does, but for the differences listed here."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.golden.grpc_steps import SETTINGS, Said, replies
from tests.interop.peers import call, start_namesrv, start_roquette_broker

GOLDEN: dict[str, Said] = json.loads((Path(__file__).parent / "grpc" / "replies.json").read_text())
POLL_S = 0.5  # Apache's shortest poll is 5 s

# What we say instead, its status code, and why.
DIFFERS: dict[str, tuple[str, str]] = {}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Said]]:
    """What a broker of ours says."""
    folder = tmp_path_factory.mktemp("golden-grpc")
    namesrv = start_namesrv("roquette", folder / "namesrv")
    try:
        quick = {"grpcClientConsumerMinLongPollingTimeoutMillis": str(int(POLL_S * 1000))}
        settings = {**SETTINGS, **quick}
        broker = start_roquette_broker(folder / "broker", namesrv.address, settings=settings)
        try:
            yield replies(broker.address, partial(call, broker.address), POLL_S)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def told(said: Said) -> Said:
    """Without what only Java says: the class of an exception before its text, and a link."""
    text = json.dumps(said)
    text = re.sub(r'"org\.apache\.rocketmq\.[\w.]+Exception: ', '"', text)
    text = re.sub(r"CODE: 17  DESC: (.*?)\\nFor more information[^\"]*", r"\1", text)
    found: Said = json.loads(text)
    return found


def code_of(said: Said) -> Any:
    """The first status code, or gRPC's own."""
    statuses = [reply["status"]["code"] for reply in said["replies"] if "status" in reply]
    return statuses[0] if said["grpc"] == "OK" and statuses else said["grpc"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_is_said(name: str, ours: dict[str, Said]) -> None:
    if name in DIFFERS:
        assert code_of(ours[name]) == DIFFERS[name][0], DIFFERS[name][1]
        assert ours[name] != GOLDEN[name], "no difference any more"
    else:
        assert told(ours[name]) == told(GOLDEN[name])


def test_each_difference_is_one_of_the_list() -> None:
    assert set(DIFFERS) <= set(GOLDEN)
