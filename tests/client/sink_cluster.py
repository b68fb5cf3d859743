"""A name server and brokers that store what is sent, or refuse as a test wants: in threads, over real sockets."""

import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from roquette.message.properties import decode_properties
from roquette.message.record import BatchCursor
from roquette.wire.bodies import BrokerData, ClusterInfo, QueueData, TopicConfig, TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.json_body import encode_body

HANG_UP, SILENCE, STORE_AND_HANG_UP = -1, -2, -3

# Given the broker's name, how many sends came to it before, and the header: code and remark, or None to store.
Verdict = Callable[[str, int, dict[str, str]], tuple[int, str] | None]


@dataclass
class Stored:
    """One message as the broker got it."""

    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    batch_of: int


class SinkCluster:
    """`queues`: topic -> broker name -> how many queues. Messages lie in `stored` by (topic, broker, queue id)."""

    def __init__(self, queues: dict[str, dict[str, int]], *, order_conf: str | None = None) -> None:
        self.topics = queues
        self.order_conf = order_conf
        self.refuse_topics = False
        self.verdict: Verdict = lambda broker, number, ext: None
        self.stored: dict[tuple[str, str, int], list[Stored]] = {}
        self.sends: list[tuple[str, dict[str, str]]] = []
        self._lock = threading.Lock()
        self._servers: dict[str, socketserver.ThreadingTCPServer] = {}
        names = sorted({name for brokers in queues.values() for name in brokers})
        for name in ["", *names]:
            self._servers[name] = self._serve(name)
        self.address = self.address_of("")

    def address_of(self, name: str) -> str:
        """Of a broker; the name server's is that of ""."""
        return f"127.0.0.1:{self._servers[name].server_address[1]}"

    def _serve(self, name: str) -> socketserver.ThreadingTCPServer:
        cluster = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                wire = WireConnection()
                while data := self.request.recv(65536):
                    for command in wire.receive_data(data):
                        answer = cluster.answer(name, command)
                        if answer is None:
                            return
                        code, remark, ext, body = answer
                        if code == SILENCE:
                            continue
                        wire.send_reply(command.opaque, code, remark, encode_dict(ext), body)
                    self.request.sendall(b"".join(wire.data_to_send()))

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        return server

    def __enter__(self) -> "SinkCluster":
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def answer(
        self, broker: str, command: Command
    ) -> tuple[int, str | None, dict[str, str], bytes] | None:
        ext = ext_dict(command.ext)
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(ext["topic"])
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return 0, None, {}, encode_body(ClusterInfo(broker_addr_table=self._brokers()))
        if command.code == RequestCode.GET_TOPIC_CONFIG:
            count = self.topics.get(ext["topic"], {}).get(broker)
            if count is None:
                return ResponseCode.TOPIC_NOT_EXIST, "no topic", {}, b""
            return 0, None, {}, encode_body(TopicConfig(ext["topic"], count, count))
        if command.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            if self.refuse_topics:
                return ResponseCode.NO_PERMISSION, "not you", {}, b""
            brokers = self.topics.setdefault(ext["topic"], {})
            brokers[broker] = int(ext["writeQueueNums"])
            return 0, None, {}, b""
        assert command.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
        with self._lock:
            number = sum(1 for name, _ in self.sends if name == broker)
            self.sends.append((broker, ext))
            verdict = self.verdict(broker, number, ext)
            if verdict is not None and verdict[0] == HANG_UP:
                return None
            if verdict is not None and verdict[0] == SILENCE:
                return SILENCE, None, {}, b""
            weak = {10, 11, 12, STORE_AND_HANG_UP}
            if verdict is not None and verdict[0] not in weak:
                return verdict[0], verdict[1], {}, b""
            offset = self._store(broker, ext, command.body)
            if verdict is not None and verdict[0] == STORE_AND_HANG_UP:
                return None
            found = {"msgId": "00", "queueId": ext["e"], "queueOffset": str(offset)}
            return (0 if verdict is None else verdict[0]), None, found, b""

    def _store(self, broker: str, ext: dict[str, str], body: bytes) -> int:
        lane = self.stored.setdefault((ext["b"], broker, int(ext["e"])), [])
        offset = len(lane)
        sys_flag = int(ext["f"])
        if ext["m"] == "false":
            lane.append(Stored(body, decode_properties(ext["i"]), int(ext["h"]), sys_flag, 1))
            return offset
        cursor = BatchCursor(body)
        found = []
        while cursor.advance():
            text = cursor.properties.decode() + ext["i"]
            found.append((cursor.body, decode_properties(text), cursor.flag))
        for one, properties, flag in found:
            lane.append(Stored(one, properties, flag, sys_flag, len(found)))
        return offset

    def _route(self, topic: str) -> tuple[int, str | None, dict[str, str], bytes]:
        brokers = self.topics.get(topic)
        if brokers is None:
            return ResponseCode.TOPIC_NOT_EXIST, "no route", {}, b""
        route = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=count,
                    write_queue_nums=count,
                    perm=6,
                    topic_sys_flag=0,
                )
                for name, count in brokers.items()
            ],
            broker_datas=[self._brokers()[name] for name in brokers],
            order_topic_conf=self.order_conf,
        )
        return 0, None, {}, encode_body(route)

    def _brokers(self) -> dict[str, BrokerData]:
        return {
            name: BrokerData(cluster="C", broker_name=name, broker_addrs={0: self.address_of(name)})
            for name in self._servers
            if name
        }

    def bodies(self, topic: str = "T") -> list[bytes]:
        """All bodies of a topic, queue by queue."""
        return [
            one.body for key, lane in sorted(self.stored.items()) if key[0] == topic for one in lane
        ]

    def messages(self, topic: str = "T") -> list[Stored]:
        """All messages of a topic, queue by queue."""
        return [one for key, lane in sorted(self.stored.items()) if key[0] == topic for one in lane]
