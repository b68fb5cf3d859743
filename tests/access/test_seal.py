"""An answer with secrets is read by the asker alone."""

import pytest

from roquette.access.processor import seal, unseal
from roquette.errors import RemoteProtocolError

SECRET, ASKED = b"the secret of servers", "00112233445566778899aabbccddeeff"


def test_who_has_the_secret_reads_the_answer_to_its_own_request() -> None:
    sealed = seal(SECRET, ASKED, bytes(12), b'{"users":[]}')
    assert b"users" not in sealed
    assert unseal(SECRET, ASKED, sealed) == b'{"users":[]}'


@pytest.mark.promise(
    "Security",
    "no request answers a secret; replicas get users sealed, and members of before get none",
)
@pytest.mark.parametrize(
    ("secret", "asked", "change"),
    [
        (b"another", ASKED, lambda sealed: sealed),
        (SECRET, ASKED[:-1] + "0", lambda sealed: sealed),
        (SECRET, ASKED, lambda sealed: sealed[:-1] + bytes((sealed[-1] ^ 1,))),
        (SECRET, ASKED, lambda sealed: sealed[:20]),
        (SECRET, ASKED, lambda sealed: b""),
        (SECRET, ASKED, lambda sealed: b'{"users":[{"username":"evil"}]}'),
    ],
)
def test_nobody_else_reads_it_and_nobody_else_makes_it(
    secret: bytes, asked: str, change: object
) -> None:
    assert callable(change)
    sealed = change(seal(SECRET, ASKED, bytes(12), b'{"users":[]}'))
    with pytest.raises(RemoteProtocolError, match="not sealed with our secret"):
        unseal(secret, asked, sealed)
