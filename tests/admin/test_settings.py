"""Settings that are changed at servers of which some take orders for what they do not have."""

from typing import Any

import pytest
from tests.admin.test_replication import run

from roquette.admin.settings import change_name_servers
from roquette.errors import BrokerError
from roquette.wire.codes import RequestCode

SETTINGS = {"orderMessageEnable": "false"}
REFUSED = BrokerError(1, "the black list has it")


@pytest.mark.parametrize(
    ("key", "answer", "told", "why"),
    [
        ("orderMessageEnable", None, SETTINGS, ""),
        ("noSuch", None, SETTINGS, "it has no setting noSuch"),
        ("noSuch", REFUSED, SETTINGS, "CODE: 1 DESC: the black list has it"),
        ("noSuch", None, BrokerError(16, "no right"), ""),
    ],
    ids=["changed", "taken, and nothing done", "refused", "not told what there is"],
)
def test_a_server_that_does_not_have_a_setting_did_not_change_it(
    key: str, answer: Any, told: Any, why: str
) -> None:
    orders: list[bytes] = []

    def said(address: str, code: int, body: bytes) -> Any:
        if code != RequestCode.UPDATE_NAMESRV_CONFIG:
            return told
        orders.append(body)
        return answer

    changes = {"orderMessageEnable": "true", key: "1"}
    assert run(change_name_servers(["ns:9876"], changes), said) == {"ns:9876": why}
    all_of_it = not why
    assert [b"orderMessageEnable" in each for each in orders] == [all_of_it], "all or nothing"
