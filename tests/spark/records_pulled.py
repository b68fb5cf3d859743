from typing import NamedTuple


class Pulled(NamedTuple):
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
