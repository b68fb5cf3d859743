"""`roquette pipeline init`: a project of Spark Declarative Pipelines over the topic of the flights, written into a new folder."""

import os
import shlex
import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from roquette.errors import ConfigError
from roquette_spark.local.jdk import spark_environment

_NOT_COPIED = shutil.ignore_patterns("__pycache__")


def init(
    folder: Annotated[
        Path, typer.Argument(help="A folder that is not there yet, or is empty.")
    ] = Path("flights"),
    declarative: Annotated[
        bool, typer.Option("--declarative", help="Of Spark Declarative Pipelines. Required.")
    ] = False,
) -> None:
    """Write a project of Spark Declarative Pipelines: a topic to bronze, silver and gold, and back to a topic."""
    if not declarative:
        raise ConfigError("init writes projects of Spark Declarative Pipelines: say --declarative")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"init: {folder} is not empty: nothing was written; give another")
    try:
        with as_file(files("roquette_spark.pipelines").joinpath("declarative")) as project:
            shutil.copytree(project, folder, dirs_exist_ok=True, ignore=_NOT_COPIED)
        spec = folder / "spark-pipeline.yml"
        spec.write_text(
            spec.read_text().replace("{storage}", f"{folder.resolve().as_uri()}/storage")
        )
    except OSError as error:
        raise ConfigError(f"init: {folder} cannot be written: {error}") from None
    needed = spark_environment(os.environ)
    words = [f"{name}={shlex.quote(needed[name])}" for name in ("JAVA_HOME", "PYSPARK_PYTHON")]
    sys.stdout.write(
        f"{folder} has bronze, silver and gold of the topic flights, and sends delayed flights to the topic flights-delayed.\n"
        f"cd {shlex.quote(str(folder))}\nexport {' '.join(words)}\n"
        "roquette topic create flights-delayed\nspark-pipelines --properties-file spark.conf run\n"
    )
