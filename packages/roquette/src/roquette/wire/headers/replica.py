"""Request of a replica of ours to its master: 13003."""

import msgspec

from roquette.wire.numbers import Int64


class FollowTablesRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """what: `tables`, `offsets`, `orders`, `users`, `deleted` or `queues`. since: of the last answer; empty: the first
    request. once: random digits of the asker; `users` are sealed for it, and told to nobody without."""

    what: str
    since: str = ""
    once: str = ""


class FollowTablesResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """since: for the next request. whole: the body is a table, not changes of it. log_end: it is to be taken when the
    replica's log reaches up to there. lacks: tables, split by commas, that the master has never had."""

    since: str
    whole: bool = False
    log_end: Int64 = 0
    lacks: str = ""
