"""Types that values need, and schemas that take more than before."""

from typing import Any

import pytest
from tests.pipelines.rows.test_json_rows import array, struct

from roquette_spark.pipelines.rows import decoder
from roquette_spark.pipelines.rows.decoder import NULL, grew_from, joined, kind_of, widened

MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, NULL),
        (True, "boolean"),
        (5, "long"),
        (2**63, "string"),
        (1.5, "double"),
        ("x", "string"),
        ([1, 2.5, None], array("double")),
        ([{"a": 1}, {"b": None}], array(struct(a="long", b=NULL))),
    ],
)
def test_what_a_value_needs(value: Any, expected: Any) -> None:
    assert kind_of(value, float) == expected


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
        (struct(a="long"), struct(b=NULL, c=array(NULL)), struct(a="long")),
        (struct(a="long"), struct(m=MAP), struct(a="long", m=MAP)),
        (struct(a=array(struct(x="short"))), struct(a=array(struct(x="long", y="string"))), struct(a=array(struct(x="long", y="string")))),
    ],
)  # fmt: skip
def test_a_schema_takes_more_and_loses_nothing(known: Any, found: Any, expected: Any) -> None:
    assert widened(known, found) == expected
    assert grew_from(expected, known)


def test_a_schema_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MOST_FIELDS", 3)
    many = struct(**{f"f{n}": "long" for n in range(4)})

    assert widened(struct(a="long"), many) == struct(a="long")


@pytest.mark.parametrize(
    "given", [struct(a="string"), struct(b="long"), struct(a=struct(x="long"))]
)
def test_a_schema_did_not_grow_from_another(given: Any) -> None:
    assert not grew_from(struct(a="long"), given)
