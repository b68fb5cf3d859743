"""A name server and broker in one, in a thread, over real sockets: for clients that block."""

import contextlib
import socket
import socketserver
import threading
from types import TracebackType

from roquette.message.message import MessageQueue
from roquette.wire.bodies import BrokerData, QueueData, TopicList, TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.json_body import encode_body


class FakeCluster:
    """Serves the records it is given, `per_pull` at a time; `requests` counts what was asked."""

    def __init__(
        self, queues: dict[MessageQueue, list[bytes]], *, per_pull: int = 32, oldest: int = 0
    ) -> None:
        self.queues = queues
        self.per_pull = per_pull
        self.oldest = oldest
        self.requests: list[tuple[int, dict[str, str]]] = []
        self.hang_up_after: int | None = None
        self.down = False  # every connection is closed at once
        self.committed: dict[tuple[str, str, int], int] = {}  # by group, topic, queue id
        self.refusals: list[int] = []  # codes of the next answers
        self.addresses: dict[int, str] = {}  # by broker id; {} is this server as the master
        self.elsewhere: dict[str, str] = {}  # addresses of brokers that another server plays
        self.connections = 0  # how many were ever made
        self._open: set[socket.socket] = set()
        cluster = self

        class Handler(socketserver.BaseRequestHandler):
            def setup(self) -> None:
                cluster.connections += 1
                cluster._open.add(self.request)

            def finish(self) -> None:
                cluster._open.discard(self.request)

            def handle(self) -> None:
                wire = WireConnection()
                while data := self.request.recv(65536):
                    if cluster.down:
                        return
                    for command in wire.receive_data(data):
                        if (
                            cluster.hang_up_after is not None
                            and len(cluster.requests) >= cluster.hang_up_after
                        ):
                            cluster.hang_up_after = None
                            return
                        code, ext, body = cluster.answer(command)
                        remark = None if code == 0 else "no"
                        wire.send_reply(command.opaque, code, remark, encode_dict(ext), body)
                    self.request.sendall(b"".join(wire.data_to_send()))

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    def __enter__(self) -> "FakeCluster":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hang_up(self) -> None:
        """Close every connection, as a broker does that is started anew."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, command: Command) -> tuple[int, dict[str, str], bytes]:
        ext = ext_dict(command.ext)
        self.requests.append((command.code, ext))
        if self.refusals:
            return self.refusals.pop(0), {}, b""
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(ext["topic"])
        if command.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            names = sorted({queue.topic for queue in self.queues})
            return 0, {}, encode_body(TopicList(topic_list=names))
        if command.code in (
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.UPDATE_CONSUMER_OFFSET,
        ):
            return self._group_offset(command.code, ext)
        topic, queue_id = ext["topic"], int(ext["queueId"])
        there = (q for q in self.queues if (q.topic, q.queue_id) == (topic, queue_id))
        if (queue := next(there, None)) is None:
            return ResponseCode.TOPIC_NOT_EXIST, {}, b""
        records = self.queues[queue]
        if command.code == RequestCode.GET_MAX_OFFSET:
            return 0, {"offset": str(len(records))}, b""
        if command.code == RequestCode.GET_MIN_OFFSET:
            return 0, {"offset": str(self.oldest)}, b""
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return 0, {"offset": str(min(len(records), int(ext["timestamp"])))}, b""
        assert command.code == RequestCode.PULL_MESSAGE, command.code
        return self._pull(records, int(ext["queueOffset"]), int(ext["maxMsgNums"]))

    def _group_offset(self, code: int, ext: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        key = ext["consumerGroup"], ext["topic"], int(ext["queueId"])
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed[key] = int(ext["commitOffset"])
            return 0, {}, b""
        if key not in self.committed:
            return ResponseCode.QUERY_NOT_FOUND, {}, b""
        return 0, {"offset": str(self.committed[key])}, b""

    def _route(self, topic: str) -> tuple[int, dict[str, str], bytes]:
        queues = [q for q in self.queues if q.topic == topic]
        if not queues:
            return ResponseCode.TOPIC_NOT_EXIST, {}, b""
        brokers = sorted({q.broker_name for q in queues})
        route = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=sum(q.broker_name == name for q in queues),
                    write_queue_nums=sum(q.broker_name == name for q in queues),
                    perm=6,
                    topic_sys_flag=0,
                )
                for name in brokers
            ],
            broker_datas=[
                BrokerData(
                    cluster="C",
                    broker_name=name,
                    broker_addrs=self.addresses or {0: self.elsewhere.get(name, self.address)},
                )
                for name in brokers
            ],
        )
        return 0, {}, encode_body(route)

    def _pull(
        self, records: list[bytes], offset: int, count: int
    ) -> tuple[int, dict[str, str], bytes]:
        found = (
            records[offset : offset + min(count, self.per_pull)] if offset >= self.oldest else []
        )
        reached = offset + len(found) if offset >= self.oldest else self.oldest
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(reached),
            "minOffset": str(self.oldest),
            "maxOffset": str(len(records)),
        }
        if found:
            return 0, ext, b"".join(found)
        moved = offset < self.oldest
        return (ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND), ext, b""
