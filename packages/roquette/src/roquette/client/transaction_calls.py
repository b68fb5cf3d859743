"""Transactions of an application."""

from typing import Unpack, cast

from roquette.client.answers import V, check_function, for_loop
from roquette.client.arguments import as_message, check_words
from roquette.client.client_base import ClientBase
from roquette.client.send_options import KeyedOptions, SendOptions
from roquette.client.transactions import MOST_CHECKS, Check, Transaction, check_transactional
from roquette.errors import ConfigError
from roquette.message.message import Message
from roquette.message.names import client_topic_error


class TransactionCalls(ClientBase[V]):
    """Transactions: a message and the application's own work succeed together."""

    def transaction(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        **options: Unpack[KeyedOptions],
    ) -> Transaction:
        """Send a message that is delivered only if the block succeeds.

            async with mq.transaction("orders", body, key="7") as tx:
                await database.save(order, tx.message_id)

        The message is stored before the block begins, unseen. The end of the block commits it, an exception rolls it
        back. When neither reaches the broker (the process died, the block was cancelled), the broker asks a producer of
        this client's group: `on_check` must have been called for the topic, here or in another process of the group.

        Args:
            options: see `KeyedOptions`.

        Raises:
            ConfigError: the client has no producer group of its own, or the message has a delay.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout: at the block's begin; as `send`.
            NotDurable: at the block's begin: it is not stored as safely as the broker promises. It is rolled back.
            TransactionLost: at the block's end: its message was dropped before, by a check.
        """
        check_words("transaction", options, KeyedOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        check_transactional(message, self._group)
        return Transaction(self.session, self._sender, message, self._checks)

    def on_check(self, topic: str, check: Check) -> None:
        """Say what became of half messages to a topic whose producer said nothing.

        Args:
            check: gets the message; answers True (deliver it), False (drop it) or None (not known yet: the broker asks
                again, 15 times by default). It is asked in any process of the group, also in one that did not send it: look
                into the database, not into memory. What is not found and young (`message.born_at`) may be at work elsewhere:
                answer None, not False. Of transactions at work in this client it is not asked. A coroutine function,
                or a function, which runs in a thread.

        Raises:
            ConfigError: `check` cannot be called, the topic has no legal name, or the client has no group of its own.
        """
        if (error := client_topic_error(topic)) is not None:
            raise ConfigError(error)
        check_function("check", check)
        check_transactional(Message(topic, b""), self._group)
        self._checks.add(topic, for_loop(check, MOST_CHECKS))
