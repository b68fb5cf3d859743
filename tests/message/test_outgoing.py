"""What a message is sent with."""

from roquette.message.message import Message
from roquette.message.outgoing import property_map


def test_the_properties_of_a_message() -> None:
    message = Message(
        "t",
        b"x",
        tag="a",
        keys=("k1", "k2"),
        properties={"own": "1"},
        delay_level=3,
        shard_key="s",
        wait_store_ok=False,
    )

    assert property_map(message) == {
        "own": "1",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "WAIT": "false",
    }
    assert property_map(Message("t", b"x")) == {"WAIT": "true"}
    assert message.properties == {"own": "1"}
