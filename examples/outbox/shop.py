"""A shop whose orders and messages agree, whatever dies: the message's id is a column of the order.

python -m examples.outbox.shop 127.0.0.1:9876 sqlite:///shop.db 7
"""

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import create_engine, func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from roquette import Client, ReceivedMessage

TOPIC, GROUP = "new-orders", "shop"
LONGEST = timedelta(minutes=1)  # to take an order never takes longer


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """An order, and which message tells of it."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(unique=True)


class Shop:
    """Takes orders, and answers brokers that ask what became of one."""

    def __init__(self, mq: Client, engine: Engine, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._mq = mq
        self._engine = engine
        Base.metadata.create_all(engine)
        mq.on_check(TOPIC, self.check)

    async def take(self, number: int) -> str:
        """Take an order; the id of its message. Raises IntegrityError when it is there already; nobody hears of it."""
        async with self._mq.transaction(TOPIC, f"order {number}", key=f"{number}") as tx:
            with Session(self._engine) as database, database.begin():
                database.add(Order(number=number, message_id=tx.message_id))
                self.before_commit(number)
            self.after_commit(number)
        return tx.message_id

    def check(self, message: ReceivedMessage) -> bool | None:
        """Was the order saved? Any process of the group is asked, so the database answers, not the memory.

        What is not found and young may be at work in another process: None, the broker asks again.
        """
        with Session(self._engine) as database:
            found = select(Order.number).where(Order.message_id == message.message_id)
            saved = database.scalar(found) is not None
        if not saved and self._now() - message.born_at < LONGEST:
            return None
        return saved

    def count(self) -> int:
        """How many orders there are."""
        with Session(self._engine) as database:
            return database.scalar(select(func.count()).select_from(Order)) or 0

    def before_commit(self, number: int) -> None:
        """Where a test ends the process."""

    def after_commit(self, number: int) -> None:
        """Where a test ends the process."""


async def main(name_servers: str, database: str, number: int) -> None:
    """Take one order."""
    async with Client(name_servers, group=GROUP) as mq:
        print(await Shop(mq, create_engine(database)).take(number))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
