"""Apache's mqadmin 5.5.0 and users: its ten commands about users and rules, unmodified, at our closed broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver
from tests.interop.peers import start_broker, start_namesrv

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: Any) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("mqadmin-access")
    namesrv = start_namesrv("roquette-signed", folder / "namesrv")
    try:
        broker = start_broker("roquette-signed", folder / "broker", namesrv.address)
        try:
            yield Cluster("roquette-signed", namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


def test_users_and_rules(drivers: Callable[[str], Driver], signed: Cluster) -> None:
    java, broker = drivers("5.5.0"), signed.broker.address

    def say(verb: str, *words: str) -> str:
        return java.mqadmin(verb, "-b", broker, *words)

    assert "success" in say("createUser", "-u", "bob", "-p", "b0b-secret", "-t", "Normal")
    assert "The user is existed" in say("createUser", "-u", "bob", "-p", "other")
    shown = say("getUser", "-u", "bob")
    assert "bob" in shown and "Normal" in shown and "enable" in shown
    assert "b0b-secret" not in shown + say("listUser")
    assert "success" in say("updateUser", "-u", "bob", "-s", "disable")
    assert "disable" in say("listUser", "-f", "bob")

    rule = ("-s", "User:bob", "-r", "Topic:bobs*", "-a", "Pub,Sub", "-d", "Allow")
    assert "success" in say("createAcl", *rule, "-i", "10.0.0.0/8")
    shown = say("getAcl", "-s", "User:bob")
    assert all(text in shown for text in ("User:bob", "Topic:bobs*", "Pub", "10.0.0.0/8", "Allow"))
    assert "success" in say("updateAcl", *rule[:-1], "Deny")
    assert "Deny" in say("listAcl", "-s", "bob")
    assert "success" in say("deleteAcl", "-s", "User:bob", "-r", "Topic:bobs*")
    assert "Topic:bobs*" not in say("listAcl", "-s", "bob")
    assert "success" in say("deleteUser", "-u", "bob")
    assert "bob" not in say("listUser")
