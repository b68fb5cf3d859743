"""Only for the fast build: ROQUETTE_COMPILE=1 compiles the modules listed in pyproject.toml with mypyc.

One C file a module, as many at once as there are processors.
"""

import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext


class ParallelBuild(build_ext):
    """build_ext's own --parallel builds extensions at once; the modules are sources of a single one."""

    def build_extensions(self) -> None:
        self.compiler.compile = partial(compile_at_once, self.compiler.compile)
        super().build_extensions()


def compile_at_once(compile_one_by_one: Any, sources: list[str], **how: Any) -> list[str]:
    """The compiler's `compile`, with a thread for each C compiler that runs."""
    biggest_first = sorted(sources, key=os.path.getsize, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda source: compile_one_by_one([source], **how), biggest_first)
        return [file for files in built for file in files]


extensions = []
if os.environ.get("ROQUETTE_COMPILE") == "1":
    from mypyc.build import mypycify

    project = tomllib.loads(Path("pyproject.toml").read_text())
    hot = project["tool"]["roquette"]["compiled"]
    extensions = mypycify(
        [f"src/{module.replace('.', '/')}.py" for module in hot],
        opt_level="3",
        debug_level="0",
        multi_file=True,
    )

setup(ext_modules=extensions, cmdclass={"build_ext": ParallelBuild})
