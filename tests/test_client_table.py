"""The table of clients in docs/reference/clients.md: its form, and that each claim has a test."""

import ast
import re
from pathlib import Path

import pytest
from tests.interop.features import CLIENTS, FEATURES, JAVA, NOT_OFFERED, V5_CLIENTS
from tools.client_table import BEGIN, END, PAGE, REMOTING, V5, Table, table, written

INTEROP = Path(__file__).parent / "interop"
CELL = re.compile(r"yes \(\d+\)|not offered|not seen")
PROVED = re.compile(r"(\d+) of (\d+)")


def committed(of: Table) -> dict[tuple[str, str], str]:
    """The cells of a committed table by client and the words of a feature."""
    text = PAGE.read_text().split(f"{of.begin}\n")[1].split(of.end)[0]
    header, line, *rows = (
        [cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()
    )
    assert header == ["feature", *of.clients, "proved at Apache's 5.5.0"]
    assert line == ["---"] * len(header)
    assert [row[0] for row in rows] == list(of.features.values())
    for row in rows:
        assert len(row) == len(header)
        assert all(CELL.fullmatch(cell) for cell in row[1:-1]), row
        proved = PROVED.fullmatch(row[-1])
        assert proved is not None and int(proved[1]) <= int(proved[2]), row
    return {(client, row[0]): cell for row in rows for client, cell in zip(of.clients, row[1:-1])}


def marked() -> set[tuple[str, str]]:
    """Pairs of client and feature that some test in tests/interop says it shows."""
    found: set[tuple[str, str]] = set()
    for path in INTEROP.glob("test_*.py"):
        if path.stem.startswith("test_v5"):  # the parameter `client` is the client there
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(
                "mark.feature"
            ):
                continue
            named = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            clients = named.get("client", JAVA)
            for client in (clients,) if isinstance(clients, str) else clients:
                assert client in CLIENTS, f"{path}: {client}"
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}"
                    assert argument.value in FEATURES, f"{path}: {argument.value}"
                    found.add((client, str(argument.value)))
    return found


def test_each_claim_of_the_committed_table_has_a_test() -> None:
    words = {text: feature for feature, text in FEATURES.items()}
    tests = marked()
    for (client, text), cell in committed(REMOTING).items():
        if cell.startswith("yes"):
            assert (client, words[text]) in tests, f"no test shows {words[text]} with {client}"
        if cell == "not offered":
            assert words[text] in NOT_OFFERED[client]


def test_v5_clients_offer_what_the_table_says() -> None:
    words = {text: feature for feature, text in V5.features.items()}
    tests = "".join(path.read_text() for path in INTEROP.glob("test_v5*.py"))
    for (client, text), cell in committed(V5).items():
        feature = words[text]
        assert (cell == "not offered") == (feature in V5.not_offered[client]), (client, feature)
        if cell.startswith("yes"):
            assert f'"{feature}"' in tests
    assert set(V5.not_offered) == set(V5_CLIENTS)


def test_nothing_a_client_does_not_offer_is_shown() -> None:
    assert not marked() & {(client, f) for client, few in NOT_OFFERED.items() for f in few}


def test_a_table_counts_passed_tests_only() -> None:
    record = {
        "a[roquette]": {"shows": [["Go 2.1.2", "tags"]], "server": "roquette", "outcome": "passed"},
        "a[apache]": {"shows": [["Go 2.1.2", "tags"]], "server": "apache", "outcome": "passed"},
        "b[roquette]": {
            "shows": [["Go 2.1.2", "tags"], ["Go 2.1.2", "push"]],
            "server": "roquette",
            "outcome": "skipped",
        },
    }
    text = table(record)
    assert (
        "| filter by tags | not seen | not seen | yes (1) | not seen | 1 of 1 |"
        in text.splitlines()
    )
    assert "| push consumer | not seen | not seen | not seen | not seen | 0 of 0 |" in text
    page = written(f"before\n{BEGIN}\nold\n{END}\nafter", text)
    assert page == f"before\n{BEGIN}\n{text}{END}\nafter"
    record["b[roquette]"]["outcome"] = "failed"
    with pytest.raises(ValueError, match="1 failed"):
        table(record)
