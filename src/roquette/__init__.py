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
    from roquette.client.access import Credentials, TlsOptions
    from roquette.client.app.application import App
    from roquette.client.client import Client
    from roquette.client.config import ClientConfig
    from roquette.client.consumer_options import OffsetStore, StartFrom
    from roquette.client.core.rebalance import by_config, by_machine_room, nearby
    from roquette.client.interceptors import Interceptor
    from roquette.client.pop import Job, Jobs
    from roquette.client.producer import SendReceipt
    from roquette.client.selection import Sql, sql
    from roquette.client.telemetry import OpenTelemetry
    from roquette.client.transactions import Transaction, TransactionState
    from roquette.errors import (
        BrokerError,
        ClientClosed,
        ClientError,
        ConfigError,
        ConnectError,
        JobExpired,
        JobSettled,
        MessageIllegal,
        NotDurable,
        NotSent,
        RemoteProtocolError,
        RequestTimeout,
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
    "ClientConfig",
    "ClientError",
    "ConfigError",
    "ConnectError",
    "Credentials",
    "Interceptor",
    "Job",
    "JobExpired",
    "JobSettled",
    "Jobs",
    "Message",
    "MessageIllegal",
    "MessageQueue",
    "NotDurable",
    "NotSent",
    "OffsetStore",
    "OpenTelemetry",
    "ReceivedMessage",
    "RemoteProtocolError",
    "RequestTimeout",
    "RoquetteError",
    "RouteNotFound",
    "SendReceipt",
    "Sql",
    "StartFrom",
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
]

_HOMES = {
    "Admin": "admin.async_admin",
    "OpenTelemetry": "client.telemetry",
    "App": "client.app.application",
    "Client": "client.client",
    "ClientConfig": "client.config",
    "SendReceipt": "client.producer",
    "Interceptor": "client.interceptors",
    "Job": "client.pop",
    "Jobs": "client.pop",
    "Transaction": "client.transactions",
    "TransactionState": "client.transactions",
    "by_config": "client.core.rebalance",
    "by_machine_room": "client.core.rebalance",
    "nearby": "client.core.rebalance",
    "Sql": "client.selection",
    "sql": "client.selection",
    "OffsetStore": "client.consumer_options",
    "StartFrom": "client.consumer_options",
    "Credentials": "client.access",
    "TlsOptions": "client.access",
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
