"""Types that values need, and schemas that take more than before."""

from typing import Any

import pytest
from tests.pipelines.rows.test_json_bodies import array, map_of, struct

from roquette_spark.pipelines.rows import decoder
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    NumberText,
    grew_from,
    joined,
    kind_of,
    widened,
)

MAP = map_of("string")


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, NULL),
        (True, "boolean"),
        (5, "long"),
        (2**63, "string"),
        (NumberText("1.5"), "double"),
        ("x", "string"),
        ([1, NumberText("2.5"), None], array("double")),
        ([{"a": 1}, {"b": None}], array(struct(a="long", b=NULL))),
    ],
)
def test_what_a_value_needs(value: Any, expected: Any) -> None:
    assert kind_of(value) == expected


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("long", "double", "double"),
        ("long", "boolean", "string"),
        (NULL, "long", "long"),
        (struct(a="long"), struct(a="double", b="string"), struct(a="double", b="string")),
        (struct(a="long"), array("long"), "string"),
    ],
)
def test_what_two_values_need(one: Any, other: Any, expected: Any) -> None:
    assert joined(one, other) == joined(other, one) == expected


@pytest.mark.parametrize(
    "known, found, expected",
    [
        (struct(a="integer"), struct(a="long"), struct(a="long")),
        (struct(a="integer"), struct(a="double"), struct(a="integer")),
        (struct(a="string"), struct(a=struct(b="long")), struct(a="string")),
        (struct(a="long"), struct(A="long"), struct(a="long")),  # case does not count
        (struct(a="float"), struct(a="double"), struct(a="double")),
        (struct(a="long"), struct(a="double"), struct(a="long")),
        (struct(a="decimal(9,2)"), struct(a="decimal(12,2)"), struct(a="decimal(12,2)")),
        (struct(a="decimal(9,2)"), struct(a="decimal(12,3)"), struct(a="decimal(9,2)")),
        (struct(a=struct(b="long")), struct(**{"a.b": "long"}), struct(a=struct(b="long"))),
        (struct(**{"a.b": "long"}), struct(a=struct(b="long")), struct(**{"a.b": "long"})),
        (struct(a=array("long")), struct(**{"a.element": "long"}), struct(a=array("long"))),
        (struct(host="string"), struct(**{"host.name": "string"}), struct(**{"host": "string", "host.name": "string"})),
        (struct(), struct(a=struct(**{"x{y}": "long", "z": "long"})), struct(a=struct(z="long"))),
        (struct(a="long"), struct(b=NULL, c=array(NULL)), struct(a="long")),
        (struct(a="long"), struct(m=MAP), struct(a="long", m=MAP)),
        (struct(a=array(struct(x="short"))), struct(a=array(struct(x="long", y="string"))), struct(a=array(struct(x="long", y="string")))),
    ],
)  # fmt: skip
def test_a_schema_takes_more_and_loses_nothing(known: Any, found: Any, expected: Any) -> None:
    assert widened(known, found) == expected
    assert grew_from(expected, known)


@pytest.mark.parametrize(
    "known, value, expected",
    [
        ("integer", 2**40, "long"),
        ("integer", NumberText("3e9"), "long"),
        ("integer", NumberText("10.5"), "integer"),
        ("integer", 2**70, "integer"),
        ("float", NumberText("1e300"), "double"),
        ("float", NumberText("1e400"), "float"),
        ("float", 10**40, "double"),
        ("decimal(4,2)", NumberText("123.45"), "decimal(5,2)"),
        ("decimal(4,2)", NumberText("1.5e3"), "decimal(6,2)"),
        ("decimal(4,2)", 12345, "decimal(7,2)"),
        ("decimal(4,2)", NumberText("1.005"), "decimal(4,2)"),
        ("decimal(4,2)", NumberText("1e99"), "decimal(4,2)"),
        (array("integer"), [1, 2**40], array("long")),
        (struct(a=array(struct(b="float"))), {"a": [None, {"b": NumberText("1e300")}]}, struct(a=array(struct(b="double")))),
    ],
)  # fmt: skip
def test_a_column_becomes_as_wide_as_a_value_needs(known: Any, value: Any, expected: Any) -> None:
    whole = struct(x=known)

    assert widened(whole, kind_of({"x": value}, whole)) == struct(x=expected)


def test_a_schema_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MOST_FIELDS", 3)
    many = struct(**{f"f{n}": "long" for n in range(4)})

    assert widened(struct(a="long"), many) == struct(a="long", f0="long", f1="long")
    wide = struct(a="long", o=struct(x="long", y="long", z="long"))
    assert widened(wide, struct(b="long")) == wide


@pytest.mark.parametrize(
    "given", [struct(a="string"), struct(b="long"), struct(a=struct(x="long"))]
)
def test_a_schema_did_not_grow_from_another(given: Any) -> None:
    assert not grew_from(struct(a="long"), given)
