"""Options come from flags, a file and defaults; what is wrong is told in one line."""

from pathlib import Path

import pytest
from tests.pipelines.sample import SampleOptions

from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import load_options, read_options_file, shown_options


def load(flags: dict[str, object], file: dict[str, object] | None = None) -> SampleOptions:
    return load_options(SampleOptions, flags, file or {}, where="sample")


def test_flags_win_over_the_file_and_the_file_over_defaults() -> None:
    found = load(
        {"rate": 3, "share": None}, {"topics": ["a", "b"], "rate": 2, "spark-conf": "x=1,2"}
    )

    assert (found.topics, found.rate, found.share) == (("a", "b"), 3, 0.5)
    assert found.spark_conf == ("x=1,2",)  # not split: values have commas


def test_many_texts_may_have_commas_or_be_repeated() -> None:
    assert load({"topics": ["a,b", " c "]}).topics == ("a", "b", "c")
    assert load({"topics": "a,b"}).topics == ("a", "b")


@pytest.mark.parametrize(
    ("flags", "file", "message"),
    [
        ({}, {}, "sample: --topics is required"),
        ({"topics": ["a"]}, {"rat": 1}, "unknown option rat in the file; did you mean rate?"),
        ({"topics": ["a"]}, {"zzz": 1}, "unknown option zzz in the file; known: "),
        ({"topics": ["a"], "rate": 0}, {}, "--rate must be a whole number of at least 1, not 0"),
        (
            {"topics": ["a"]},
            {"rate": "many"},
            "--rate must be a whole number of at least 1, not 'many'",
        ),
        (
            {"topics": ["a"]},
            {"rate": True},
            "--rate must be a whole number of at least 1, not True",
        ),
        ({"topics": ["a"]}, {"follow": "yes"}, "--follow must be true or false, not 'yes'"),
        ({"topics": ["a"]}, {"form": "xml"}, "--form must be json or raw, not 'xml'"),
        ({"topics": ["a"]}, {"extra": [1]}, "--extra must be a text or a list of texts"),
        ({"topics": [","]}, {}, "--topics is required"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    flags: dict[str, object], file: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(flags, file)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_whole_number_is_a_number_too() -> None:
    assert load({"topics": ["a"]}, {"share": 1}).share == 1.0


def test_secrets_are_not_shown() -> None:
    shown = shown_options(load({"topics": ["a"], "password": "hunter2"}))

    assert shown["password"] == "***"
    assert shown["topics"] == ("a",)


def test_a_json_file_is_read_without_yaml(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text('{"topics": ["a"], "rate": 7}')

    assert read_options_file(str(path), OsFiles()) == {"topics": ["a"], "rate": 7}


def test_a_yaml_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "options.yaml"
    path.write_text("topics: [a, b]\nmax-rate: 5\n# nothing\n")

    assert read_options_file(str(path), OsFiles()) == {"topics": ["a", "b"], "max-rate": 5}


@pytest.mark.parametrize(
    ("text", "message"), [("[1, 2]", "has no lines of the form"), ('{"a": ', "is malformed: ")]
)
def test_a_file_of_something_else_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "options.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_options_file(str(path), OsFiles())


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml of --config cannot be read"):
        read_options_file("nowhere.yaml", OsFiles())
