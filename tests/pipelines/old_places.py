"""What commit 1b94d96 has written (tests/fixtures/1b94d96), and the cluster it read from."""

import json
import tarfile
from pathlib import Path

from tests.spark.records import make_record

from roquette.message.message import MessageQueue

FIXTURES = Path(__file__).parents[1] / "fixtures/1b94d96"


def unpack(name: str, to: Path) -> Path:
    """One of tables, streams, states; returns the folder."""
    with tarfile.open(FIXTURES / f"pipelines-{name}.tar.gz") as packed:
        packed.extractall(to, filter="data")
    return to


def old_queues() -> dict[MessageQueue, list[bytes]]:
    """The messages that were there, as the book has them."""
    book = json.loads((FIXTURES / "pipelines.json").read_text())["messages"]
    found = {}
    for place, messages in book.items():
        topic, broker, queue = place.split("/")
        found[MessageQueue(topic, broker, int(queue))] = [
            make_record(
                i,
                bytes.fromhex(each["body"]),
                each["properties"],
                topic=topic,
                queue_id=int(queue),
            )
            for i, each in enumerate(messages)
        ]
    return found


def add(queues: dict[MessageQueue, list[bytes]], topic: str, bodies: list[bytes]) -> None:
    """The same number of new messages in each queue of a topic."""
    for queue, records in queues.items():
        if queue.topic == topic:
            for body in bodies:
                records.append(
                    make_record(
                        len(records), body, {"colour": "blue"}, topic=topic, queue_id=queue.queue_id
                    )
                )
