"""Where a message that waits belongs: delayed, timed and half messages lie in topics of the broker's own."""

from roquette.message import properties


def keep_place(named: dict[str, str], topic: str, queue_id: int) -> None:
    """Note it in the message's properties, over what its sender says of it."""
    named[properties.REAL_TOPIC] = topic
    named[properties.REAL_QID] = str(queue_id)
