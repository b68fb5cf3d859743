"""What proves a name and a secret: an answer, or a refusal for want of a right; nothing else does."""

import asyncio
from typing import Any

import pytest

from roquette.admin.who import prove
from roquette.errors import BrokerError, ConnectError, RouteNotFound


class AsksOne:
    """A client whose name server answers with this."""

    def __init__(self, answer: Exception | None) -> None:
        self.session = self
        self._answer = answer

    async def ask_name_servers(self, call: Any) -> None:
        if self._answer is not None:
            raise self._answer


@pytest.mark.parametrize(
    ("answer", "is_proven"),
    [
        (None, True),
        (RouteNotFound("TBW102", "No topic route info"), True),
        (
            BrokerError(16, "User:alice has no permission to access Topic:TBW102 from 10.0.0.1"),
            True,
        ),
        (BrokerError(16, "User:alice is not found."), False),
        (BrokerError(16, "User:alice is disabled."), False),
        (BrokerError(16, "check signature failed."), False),
        (BrokerError(16, "username cannot be null."), False),
    ],
)
def test_a_refusal_proves_when_it_is_for_want_of_a_right(
    answer: Exception | None, is_proven: bool
) -> None:
    assert asyncio.run(prove(AsksOne(answer))) is is_proven  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [BrokerError(2, "system busy"), ConnectError("no")])
def test_other_failures_prove_nothing(error: Exception) -> None:
    with pytest.raises(type(error)):
        asyncio.run(prove(AsksOne(error)))  # type: ignore[arg-type]
