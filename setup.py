"""Only for the fast build: ROQUETTE_COMPILE=1 compiles the modules listed in pyproject.toml with mypyc."""

import os
import tomllib
from pathlib import Path

from setuptools import setup

extensions = []
if os.environ.get("ROQUETTE_COMPILE") == "1":
    from mypyc.build import mypycify

    project = tomllib.loads(Path("pyproject.toml").read_text())
    hot = project["tool"]["roquette"]["compiled"]
    extensions = mypycify(
        [f"src/{module.replace('.', '/')}.py" for module in hot],
        opt_level="3",
        debug_level="0",
    )

setup(ext_modules=extensions)
