"""Apache's proxy in LOCAL mode, its broker inside: the oracle of the v5 protocol."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.peers import (
    OPENED,
    SMALL_JVM,
    SMALL_STORE,
    START_TIMEOUT_S,
    Process,
    Server,
    class_path,
    free_port,
    require_java,
)


@dataclass(frozen=True)
class Door:
    """Where v5 clients find a server (`grpc`), and its broker at its remoting port."""

    broker: Server
    grpc: str
    namesrv: str = ""


# The log of the proxy has a configuration of its own, found in ROCKETMQ_HOME.
_LOGBACK = """<configuration><appender name="out" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %logger - %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root></configuration>"""


def start_apache_proxy(
    folder: Path, namesrv: str, *, settings: Mapping[str, str] | None = None
) -> Door:
    """Apache's proxy 5.5.0 with a broker in the same JVM, on free loopback ports, ready."""
    require_java()
    port, grpc, remoting = free_port(), free_port(), free_port()
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "rmq.proxy.logback.xml").write_text(_LOGBACK)
    broker = {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "namesrvAddr": namesrv,
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        **SMALL_STORE,
        **(settings or {}),
    }
    (folder / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in broker.items()))
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": int(grpc),
        "remotingListenPort": int(remoting),
        "localServeAddr": "127.0.0.1",
        "namesrvAddr": namesrv,
        "grpcThreadPoolNums": 8,
    }
    (folder / "proxy.json").write_text(json.dumps(proxy))
    command = [
        *("java", *SMALL_JVM, "-Xmx768m", "-XX:MaxDirectMemorySize=512m", *OPENED),
        *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
        *("-cp", class_path("proxy55"), "org.apache.rocketmq.proxy.ProxyStartup"),
        *("-pm", "local", "-n", namesrv),
        *("-bc", str(folder / "broker.conf"), "-pc", str(folder / "proxy.json")),
    ]
    process = Process(command, folder, {"ROCKETMQ_HOME": str(folder), "NAMESRV_ADDR": ""})
    try:
        process.line_with("rocketmq-proxy startup successfully", START_TIMEOUT_S)
        socket.create_connection(("127.0.0.1", grpc), 5).close()
    except BaseException:
        process.stop()
        raise
    return Door(Server(process, f"127.0.0.1:{port}", "apache", "broker-a"), f"127.0.0.1:{grpc}")
