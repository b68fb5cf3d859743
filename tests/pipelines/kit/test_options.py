"""Options come from flags, a file and defaults; what is wrong is told in one line."""

from pathlib import Path

import pytest
from tests.pipelines.sample import PIPELINE, SampleOptions

from roquette.base.files import OsFiles
from roquette.base.options import key_values, options_of, without_secret
from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.pipelines.kit.frame import load_options, read_options_file, shown_options
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.values.options import ReadOptions


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


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("secretKey=hunter2", "secretKey=***"),
        ("accessKey=hunter2", "accessKey=***"),
        ("securityToken=hunter2", "securityToken=***"),
        ("tls.keyPassword=hunter2", "tls.keyPassword=***"),
        ("tls.client.keyPassword=hunter2", "tls.client.keyPassword=***"),
        ("spark.hadoop.fs.s3a.secret.key=hunter2", "spark.hadoop.fs.s3a.secret.key=***"),
        (
            "spark.hadoop.fs.azure.account.key.x.net=hunter2",
            "spark.hadoop.fs.azure.account.key.x.net=***",
        ),
        (
            "spark.driver.extraJavaOptions=-Djavax.net.ssl.trustStorePassword=hunter2",
            "spark.driver.extraJavaOptions=***",
        ),
        (
            "spark.hadoop.fs.s3a.proxy=http://me:hunter2@proxy:1",
            "spark.hadoop.fs.s3a.proxy=http://***@proxy:1",
        ),
        ("failOnDataLoss=false", "failOnDataLoss=false"),
        ("spark.sql.shuffle.partitions=4", "spark.sql.shuffle.partitions=4"),
    ],
)
def test_secrets_in_words_and_addresses_are_not_shown(word: str, said: str) -> None:
    options = ArchiveOptions(
        topics=("a",),
        to="s3://user:hunter2@bucket/x",
        source_option=(word,),
        spark_conf=("spark.a=b", word),
    )

    shown = shown_options(options)

    assert shown["source_option"] == (said,)
    assert shown["spark_conf"] == ("spark.a=b", said)
    assert shown["to"] == "s3://***@bucket/x"


def test_every_secret_option_of_the_source_is_hidden_in_its_word() -> None:
    secrets = [
        each
        for known in options_of(ReadOptions).values()
        if known.secret
        for each in (known.name, *known.also)
    ]
    assert len(secrets) >= 4
    assert {without_secret(f"{name}=x") for name in secrets} == {f"{name}=***" for name in secrets}


def test_no_summary_and_no_error_has_a_secret(tmp_path: Path) -> None:
    options = SampleOptions(topics=("a",), spark_conf=("spark.x.password=hunter2",))
    run_pipeline(PIPELINE, options, directory=str(tmp_path / "report"))
    with pytest.raises(ConfigError) as error:
        key_values(["secretKey:hunter2"], "--source-option")

    texts = [path.read_text() for path in (tmp_path / "report").iterdir()]
    assert len(texts) == 2
    assert not any("hunter2" in text for text in (*texts, str(error.value)))


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
