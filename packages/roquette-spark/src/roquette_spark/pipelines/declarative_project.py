"""`roquette pipeline init`: a project of Spark Declarative Pipelines over the topic of the flights, written into a new folder."""

import os
import shlex
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from roquette.errors import ConfigError
from roquette_spark.local.jdk import spark_environment

SPEC, SETTINGS = "spark-pipeline.yml", "spark.conf"


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
    write_project(folder)
    needed = spark_environment(os.environ)
    words = [f"{name}={shlex.quote(needed[name])}" for name in ("JAVA_HOME", "PYSPARK_PYTHON")]
    sys.stdout.write(
        f"{folder} has bronze, silver and gold of the topic flights, and sends delayed flights to the topic flights-delayed.\n"
        f"cd {shlex.quote(str(folder))}\nexport {' '.join(words)}\n"
        f"roquette topic create flights-delayed\nspark-pipelines --properties-file {SETTINGS} run\n"
    )


def write_project(folder: Path) -> None:
    """Copy the project's files.

    Raises:
        ConfigError: the folder has something, or cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"init: {folder} is not empty: nothing was written; give another")
        with as_file(files("roquette_spark.pipelines").joinpath("declarative")) as project:
            for path in sorted(project.rglob("*.*")):
                if path.is_file() and path.suffix != ".pyc":
                    text = path.read_text(encoding="utf-8")
                    if path.name == SPEC:
                        text = text.replace("{storage}", folder.resolve().as_uri() + "/storage")
                    place = folder / path.relative_to(project)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"init: {folder} cannot be written: {error}") from None
