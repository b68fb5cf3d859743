"""What the service and the worker say to each other."""

from pydantic import BaseModel

ORDERS, STATUS = "web-orders", "web-order-status"


class Order(BaseModel):
    """An order of a customer."""

    number: int
    cents: int


class OrderStatus(BaseModel):
    """How far one is."""

    number: int
    state: str
