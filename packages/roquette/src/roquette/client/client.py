"""The client as applications see it: send, consume, subscribe, pull. Each kind of call has a module of its own."""

from roquette.client.answers import V
from roquette.client.consume_calls import ConsumeCalls
from roquette.client.look_calls import LookCalls
from roquette.client.pop_calls import PopCalls
from roquette.client.request_calls import RequestCalls
from roquette.client.send_calls import SendCalls
from roquette.client.transaction_calls import TransactionCalls
from roquette.message.message import ReceivedMessage


class Client(SendCalls[V], TransactionCalls[V], RequestCalls[V], ConsumeCalls, PopCalls, LookCalls):
    """Producers and consumers of one process in one cluster.

        async with Client("127.0.0.1:9876") as mq:
            await mq.send("orders", b"...", key="7", tag="new")
            async for message in mq.consume("orders", group="billing"):
                ...

    Args:
        name_servers: "host:port;host:port", or where such a list is found: "http://host:port/path", "dns://name:port"; without
            it those of the environment's NAMESRV_ADDR.
        group: the producer group.
        encode: makes the bodies of values that are sent, which are neither bytes nor str: `roquette.to_json`, a registry's
            serializer, a function of yours. `Client[Order]` is one that takes orders.
        settings: see `ClientSettings`: `tls=True` or `TlsOptions(ca=...)`; `access_key` and `secret_key`, or `credentials`;
            `send_timeout=5` ... What is not said the environment may say, as ROQUETTE_SEND_TIMEOUT.

    Raises:
        ConfigError: an argument is wrong.
    """


__all__ = ["Client", "ReceivedMessage"]
