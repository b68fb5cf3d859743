"""Signatures: Apache's own example, and that both ends of ours agree."""

import hmac
import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import ConfigError
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import BadHeader
from roquette.wire.signature import (
    LONGEST_NAME,
    MOST_NAMES,
    Credentials,
    Signer,
    ext_fields,
    more_names,
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
    client, server = WireConnection(), WireConnection()
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


@given(st.binary(max_size=200), st.binary(max_size=300))
def test_a_secret_made_ready_signs_as_the_librarys_hmac(secret: bytes, body: bytes) -> None:
    wanted = b64encode(hmac.digest(secret, b"v" + body, "sha1"))
    assert signature(secret, {"name": "v", "Signature": "not signed"}, body) == wanted


NAMES = ("a", "b", "AccessKey", "Signature", "z")
NAME = st.sampled_from([*(f'"{name}"' for name in NAMES), '"\\u0061"', '"other"', '""', '"a'])
VALUE = st.sampled_from(
    ['""', '"x"', '"\\u0001é"', '"\\ud800"', '"\\""', "null", "7", "true", "{}", '"', '"\n"']
)
OBJECT = st.lists(st.tuples(NAME, VALUE), max_size=7).map(
    lambda members: "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"
)


@given(OBJECT, st.sampled_from(["", " ", "x", "[]"]), st.sampled_from([b"", b"body"]))
def test_names_that_are_known_are_read_as_any_others(text: str, more: str, body: bytes) -> None:
    """Whatever the JSON is: what the short way does not read as the long one does, it leaves to that."""
    ext = (text + more).encode()
    names = more_names(None, NAMES)
    assert names is not None
    found = names.read(ext, body)
    try:
        fields = ext_fields(ext)
    except BadHeader:
        assert found is None
        return
    usual = (
        fields.get("AccessKey", ""),
        fields.get("Signature", ""),
        signed_content(fields, body),
    )
    assert found in (None, usual)
    # Of a name that comes twice, too: the long way alone reads other values.
    said = json.loads(text, strict=False, object_pairs_hook=list)
    if set(fields) <= set(NAMES) and all(value in ("x", "") for _, value in said):
        assert found == usual


def test_names_come_to_those_that_are_known_within_bounds() -> None:
    one = more_names(None, ["a", "b"])
    assert one is not None and one.names == {"a", "b", "AccessKey", "Signature"}
    two = more_names(one, ["c"])
    assert two is not None and two.names == one.names | {"c"}
    assert two.read(b'{"c":"3","a":"1"}', b"") == ("", "", b"13")
    for names in (map("n{}".format, range(MOST_NAMES)), ["x" * (LONGEST_NAME + 1)], ["no name"]):
        assert more_names(two, names) is two
    assert more_names(None, ["no name"]) is None
