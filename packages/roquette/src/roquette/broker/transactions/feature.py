"""Transactions: their ends by request, and checks of those whose producers stay silent."""

from roquette.base import metric_families as m
from roquette.base.exposition import MetricTable, one
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.transactions.checks import TransactionChecks
from roquette.broker.transactions.end_transaction import TransactionProcessor
from roquette.broker.transactions.half_messages import HalfMessages
from roquette.remoting.promises import Promise
from roquette.remoting.request import Row, row
from roquette.wire.codes import RequestCode
from roquette.wire.headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader

BEAT_S = 0.1


class TransactionFeature(Feature):
    """Serves the ends of transactions, and asks for them.

    Attributes:
        transactions: the half messages, which sends put.
        checks: the beat that asks producers.
    """

    def __init__(self, core: BrokerCore) -> None:
        self.transactions = HalfMessages(
            core.store, core.writer, core.address.store_host, core.delivered
        )
        self.checks = TransactionChecks(core, self.transactions)
        self._ends = TransactionProcessor(core, self.transactions)

    def rows(self) -> list[Row]:
        """What it serves."""
        return [
            row(
                RequestCode.END_TRANSACTION,
                self._ends.end_transaction,
                EndTransactionRequestHeader,
                Lane.END_TRANSACTION,
                Promise.LOG,
            ),
            row(
                RequestCode.RESUME_CHECK_HALF_MESSAGE,
                self._ends.resume_check,
                ResumeCheckHalfMessageRequestHeader,
                Lane.ADMIN,
                Promise.LOG,
            ),
        ]

    def beats(self) -> list[Beat]:
        """Checks."""
        return [Beat("transaction-checks", BEAT_S, self.checks.tick)]

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Open half messages, and how transactions ended."""
        known = self.transactions
        waiting = known.state.open_before(known.end_offset)
        return [
            one(m.HALF, waiting),
            one(m.COMMITS, known.committed),
            one(m.ROLLBACKS, known.rolled_back),
        ]

    def load(self, start: Start) -> None:
        """Find the open half messages."""
        self.checks.load(start.last_record_offset)
