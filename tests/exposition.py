"""Reads Prometheus' text format 0.0.4 strictly: what is in any way odd is an error."""

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_SAMPLE = re.compile(rf"({_NAME})\{{({_LABEL}(?:,{_LABEL})*)?\}} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_HEAD = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.+)")


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


def read_exposition(text: str) -> list[Sample]:
    """All samples. Every one stands behind the HELP and TYPE of its family, each family and each series once."""
    assert text.endswith("\n")
    found: list[Sample] = []
    kinds: dict[str, str] = {}
    helped = family = ""
    series: set[str] = set()
    for line in text[:-1].split("\n"):
        if head := _HEAD.fullmatch(line):
            if head[1] == "HELP":
                helped = head[2]
                continue
            family = head[2]
            assert family == helped, f"TYPE without HELP: {line}"
            assert family not in kinds, f"twice: {line}"
            assert head[3] in ("counter", "gauge", "summary")
            kinds[family] = head[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        name = sample[1]
        names = [family] if kinds[family] != "summary" else [f"{family}_sum", f"{family}_count"]
        assert name in names, f"{name} among those of {family}"
        pairs = re.findall(_LABEL, sample[2] or "")
        labels = {key: _plain(value) for key, value in pairs}
        assert len(labels) == len(pairs), f"a label twice: {line}"
        key = line.rpartition(" ")[0]
        assert key not in series, f"a series twice: {line}"
        series.add(key)
        found.append(Sample(name, labels, float(sample[7])))
    return found


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value)
