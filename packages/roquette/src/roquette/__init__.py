"""Roquette: Apache RocketMQ in Python.

async with roquette.Client("127.0.0.1:9876") as mq:
    await mq.send("orders", b"...")

The names below are the public interface; they are imported when first used, so that servers do not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from roquette.base import form as _form

if TYPE_CHECKING:
    from roquette import sync
    from roquette.admin.async_admin import Admin
    from roquette.client.app.application import App
    from roquette.client.app.router import Router
    from roquette.client.client import Client
    from roquette.client.config import Credentials, TlsOptions
    from roquette.client.consumer import Consumer, MessageStream
    from roquette.client.consumer_options import (
        ConsumerOptions,
        OffsetStore,
        PopOptions,
        ReaderOptions,
        ServeOptions,
        Sql,
        StartFrom,
        StreamOptions,
        sql,
        to_json,
    )
    from roquette.client.core.rebalance import by_config, by_machine_room, nearby
    from roquette.client.events import Event, EventKind
    from roquette.client.interceptors import Interceptor
    from roquette.client.pop import PoppedMessages
    from roquette.client.producer import SendOptions, SendReceipt
    from roquette.client.reader import Reader
    from roquette.client.settings import ClientSettings
    from roquette.client.telemetry import OpenTelemetry
    from roquette.client.transactions import Transaction, TransactionState
    from roquette.errors import (
        BrokerError,
        ClientClosed,
        ClientError,
        ConfigError,
        ConnectError,
        MessageExpired,
        MessageIllegal,
        MessageSettled,
        NotDurable,
        NotSent,
        RemoteProtocolError,
        RequestTimeout,
        Retry,
        RoquetteError,
        RouteNotFound,
        TooManyRequests,
        TransactionLost,
        Unreachable,
    )
    from roquette.message.message import Message, MessageQueue, ReceivedMessage

__version__ = "0.1.0"

_form.choose()

__all__ = [
    "Admin",
    "App",
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ConfigError",
    "ConnectError",
    "Consumer",
    "ConsumerOptions",
    "Credentials",
    "Event",
    "EventKind",
    "Interceptor",
    "Message",
    "MessageExpired",
    "MessageIllegal",
    "MessageQueue",
    "MessageSettled",
    "MessageStream",
    "NotDurable",
    "NotSent",
    "OffsetStore",
    "OpenTelemetry",
    "PopOptions",
    "PoppedMessages",
    "Reader",
    "ReaderOptions",
    "ReceivedMessage",
    "RemoteProtocolError",
    "RequestTimeout",
    "Retry",
    "RoquetteError",
    "RouteNotFound",
    "Router",
    "SendOptions",
    "SendReceipt",
    "ServeOptions",
    "Sql",
    "StartFrom",
    "StreamOptions",
    "TlsOptions",
    "TooManyRequests",
    "Transaction",
    "TransactionLost",
    "TransactionState",
    "Unreachable",
    "__version__",
    "by_config",
    "by_machine_room",
    "nearby",
    "sql",
    "sync",
    "to_json",
]

_HOMES = {
    "Admin": "admin.async_admin",
    "OpenTelemetry": "client.telemetry",
    "App": "client.app.application",
    "Router": "client.app.router",
    "Client": "client.client",
    "ClientSettings": "client.settings",
    "SendReceipt": "client.producer",
    "to_json": "client.consumer_options",
    "Event": "client.events",
    "EventKind": "client.events",
    "Interceptor": "client.interceptors",
    "PoppedMessages": "client.pop",
    "Consumer": "client.consumer",
    "MessageStream": "client.consumer",
    "Reader": "client.reader",
    "ConsumerOptions": "client.consumer_options",
    "StreamOptions": "client.consumer_options",
    "ServeOptions": "client.consumer_options",
    "PopOptions": "client.consumer_options",
    "ReaderOptions": "client.consumer_options",
    "Transaction": "client.transactions",
    "TransactionState": "client.transactions",
    "by_config": "client.core.rebalance",
    "by_machine_room": "client.core.rebalance",
    "nearby": "client.core.rebalance",
    "SendOptions": "client.producer",
    "Sql": "client.consumer_options",
    "sql": "client.consumer_options",
    "OffsetStore": "client.consumer_options",
    "StartFrom": "client.consumer_options",
    "Credentials": "client.config",
    "TlsOptions": "client.config",
    "Message": "message.message",
    "MessageQueue": "message.message",
    "ReceivedMessage": "message.message",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'roquette' has no attribute {name!r}")
    if name == "sync":
        return import_module("roquette.sync")
    return getattr(import_module(f"roquette.{_HOMES.get(name, 'errors')}"), name)
