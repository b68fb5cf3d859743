"""Signatures: Apache's own example, and that both ends of ours agree."""

import json

import pytest

from roquette.errors import ConfigError
from roquette.wire.connection import Connection
from roquette.wire.signature import (
    Credentials,
    Signer,
    ext_fields,
    signature,
    signed_content,
    signs,
)


def test_apaches_example() -> None:
    """AclUtilsTest / AclSignerTest of Apache: rocketmq2 with the secret 12345678."""
    fields = {"topic": "TopicTest", "queueId": "0", "AccessKey": "rocketmq2"}
    assert signature(b"12345678", fields, b"body") == b"chWLLvYcsGW0hhV0uKh0Ylw0XSk="


@pytest.mark.parametrize("ext", [b"", b"{}", b'{"b":"2","a":"\\u00e4","n":7,"t":true,"z":null}'])
@pytest.mark.parametrize("token", ["", 'a "token"'])
def test_a_signed_request_is_verified(ext: bytes, token: str) -> None:
    client, server = Connection(), Connection()
    client.signer = Signer(Credentials('the "user"', "sécret", token))
    client.send_request(10, ext, b"body")
    (command,) = server.receive_data(b"".join(client.data_to_send()))
    fields = ext_fields(command.ext)
    assert fields["AccessKey"] == 'the "user"'
    assert fields.get("SecurityToken", "") == token
    secret = "sécret".encode()
    assert signs(fields["Signature"], secret, signed_content(fields, command.body))
    assert not signs(fields["Signature"], secret + b"x", signed_content(fields, command.body))
    assert not signs(fields["Signature"], secret, signed_content(fields, command.body + b"x"))
    assert not signs("é", secret, signed_content(fields, command.body))
    for name in fields:
        if name != "Signature":
            changed = fields | {name: fields[name] + "x"}
            assert not signs(fields["Signature"], secret, signed_content(changed, command.body)), (
                name
            )
    given = {name: value for name, value in json.loads(ext or b"{}").items() if value is not None}
    assert set(given) <= set(fields)


def test_secrets_are_in_no_text() -> None:
    credentials = Credentials("alice", "do-not-show", "nor-this")
    assert "do-not" not in repr(credentials)
    assert "nor-this" not in str(credentials)
    with pytest.raises(ConfigError, match="one of them is empty"):
        Credentials("alice", "")
