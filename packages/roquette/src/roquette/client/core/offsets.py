"""Offsets a consumer saves: in which order to a broker, and, broadcasting, in the file Apache's client would keep."""

from collections.abc import Collection

from roquette.base.files import Files
from roquette.errors import RemoteProtocolError
from roquette.message.message import MessageQueue
from roquette.wire.bodies import LocalOffsets
from roquette.wire.json_body import decode_body, fastjson_pretty


class LocalOffsetFile:
    """`<root>/<client id>/<group>/offsets.json` (LocalFileOffsetStore)."""

    def __init__(self, files: Files, root: str, client_id: str, group: str) -> None:
        self._files = files
        self._directory = f"{root}/{client_id}/{group}"
        self._path = f"{self._directory}/offsets.json"

    def load(self) -> dict[MessageQueue, int]:
        """Read the offsets that were saved; the backup when the file is torn; nothing when there is neither."""
        for path in (self._path, self._path + ".bak"):
            if self._files.exists(path):
                try:
                    return decode_body(LocalOffsets, self._files.read_bytes(path)).offset_table
                except RemoteProtocolError:
                    continue
        return {}

    def save(self, offsets: dict[MessageQueue, int]) -> None:
        """Replace the file, keeping the previous one as a backup."""
        self._files.make_dirs(self._directory)
        self._files.write_atomic(self._path, fastjson_pretty(LocalOffsets(offset_table=offsets)))


def two_waves(queues: Collection[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """The order to commit in: one queue of each topic at each broker, and when those are stored the rest.

    Apache's broker makes a group's table of a topic with the first offset it gets, without a lock: of two
    first commits at the same time one is lost, though answered (ConsumerOffsetManager.commitOffset).
    """
    first = {(queue.broker_name, queue.topic): queue for queue in queues}
    alone = set(first.values())
    return list(first.values()), [queue for queue in queues if queue not in alone]
