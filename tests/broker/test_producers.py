"""Who produces."""

from tests.broker.test_consumers import fake_peer

from roquette.broker.floor.tables.consumers import CHANNEL_EXPIRED_MS, ProducerTable


def test_a_producer_is_there_from_its_heartbeat_to_its_end() -> None:
    table = ProducerTable()
    peer = fake_peer(1)

    table.register("g", peer, client_id="a", language="GO", version=317, now_ms=0)

    assert [c.client_id for c in table.channels("g")] == ["a"]
    assert table.groups() == ["g"]
    table.remove_peer(peer)
    assert table.groups() == []


def test_expiry_and_unregistration() -> None:
    table = ProducerTable()
    peer = fake_peer(1)
    table.register("g", peer, client_id="a", language="GO", version=317, now_ms=0)
    table.register("h", peer, client_id="a", language="GO", version=317, now_ms=5)

    table.unregister("h", peer)

    assert table.expire(CHANNEL_EXPIRED_MS + 1) == [peer]
    assert table.channels("g") == []
