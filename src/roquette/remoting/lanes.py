"""How much of each class of work may wait. HOT."""


class LaneLimits:
    """Bounds of one class of work: `capacity` requests wait at most, each `wait_ms` at most (0: no limit).

    Attributes:
        budget: what a turn serves. free: while so few wait nobody is asked for his share.
    """

    __slots__ = ("budget", "capacity", "free", "name", "wait_ms")

    def __init__(self, name: str, capacity: int, wait_ms: int = 0, budget: int = 512) -> None:
        self.name: str = name
        self.capacity: int = capacity
        self.wait_ms: int = wait_ms
        self.budget: int = budget
        self.free: int = min(budget, capacity)
