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
    def said(address: str, code: int, body: bytes) -> Any:
        return answer if code == RequestCode.UPDATE_NAMESRV_CONFIG else told

    assert run(change_name_servers(["ns:9876"], {key: "1"}), said) == {"ns:9876": why}
