"""What a producer gets for messages that were stored, and for those of a batch that were not."""

from collections.abc import Sequence

import msgspec

from roquette.errors import ClientError, NotSent
from roquette.message.message import MessageQueue


class SendReceipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Answer of the broker to a message it stored.

    Attributes:
        status: SEND_OK, or which durability was not reached in time (the message is stored all the same).
        message_id: the unique id we gave it. `offset_message_id`: where it lies on its broker.
        queue_offset: its index in `queue`.
        recall_handle: of a message delivered later: what `Client.recall` takes it back by; "" for others.
        transaction_id: of a half message; what brokers say of others means nothing.
    """

    status: str
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str = ""
    transaction_id: str = ""


def all_stored(outcomes: Sequence[SendReceipt | ClientError]) -> list[SendReceipt]:
    """The receipts of a batch; raises the first of its errors, which then knows what became of each message."""
    receipts = [each for each in outcomes if isinstance(each, SendReceipt)]
    if len(receipts) == len(outcomes):
        return receipts
    errors = [each for each in outcomes if isinstance(each, ClientError)]
    error = next(each for each in errors if not isinstance(each, NotSent))
    error.receipts, error.outcomes = tuple(receipts), tuple(outcomes)
    unsent = sum(isinstance(each, NotSent) for each in outcomes)
    failed = len(outcomes) - len(receipts) - unsent
    error.add_note(
        f"of {len(outcomes)} messages of the batch {len(receipts)} were stored, {failed} failed and {unsent} were not sent"
    )
    raise error
