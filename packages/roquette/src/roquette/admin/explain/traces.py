"""Message trace, as Apache's clients and ours write it, read for one message: pure."""

from collections.abc import Iterable

from roquette.admin.explain.facts import Attempt
from roquette.base.javatypes import whole_number

_FIELD, _RECORD = "\x01", "\x02"
_MOST = 2**63 - 1


def attempts_in(texts: Iterable[tuple[str, str]], message_id: str) -> list[Attempt]:
    """Who handled a message, of trace messages' (body, sender's host), by the time it began.

    Records of other messages, and those that cannot be read, are left out.
    """
    begun: dict[str, Attempt] = {}
    ended: dict[str, bool] = {}
    for text, host in texts:
        for record in text.split(_RECORD):
            fields = record.strip().split(_FIELD)
            if fields[0] == "SubBefore" and len(fields) >= 7 and fields[5] == message_id:
                _, at_ms, _, group, request, _, retries, *_ = fields
                begun_ms, times = whole_number(at_ms, _MOST), whole_number(retries, _MOST)
                if begun_ms >= 0 and times >= 0:
                    group = group.rpartition("%")[2]
                    begun[request] = Attempt(group, host, begun_ms, times, None)
            elif fields[0] == "SubAfter" and len(fields) >= 5 and fields[2] == message_id:
                ended[fields[1]] = fields[4] == "true"
    found = [
        Attempt(each.group, each.host, each.begun_ms, each.retries, ended.get(request))
        for request, each in begun.items()
    ]
    return sorted(found, key=lambda each: each.begun_ms)
