"""The compiled form: mypyc compiles the modules listed in pyproject.toml, one C file each, as many at once as there are
processors.

ROQUETTE_COMPILE=1 demands it, 0 leaves it out; without the variable it is made where a C compiler is found, and what
keeps it from being made leaves the interpreted form, with a line that says so.
"""

import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent))
from build_backend import wants_compiled

# Calls among our own functions go through no table. Link-time optimisation as well takes 26 % more of a build's CPU for 1 % of the
# instructions: not here.
OWN_CALLS = ["-fvisibility=hidden", "-fno-semantic-interposition"]


class ParallelBuild(build_ext):
    """build_ext's own --parallel builds extensions at once; the modules are sources of a single one."""

    def build_extensions(self) -> None:
        self.compiler.compile = partial(compile_at_once, self.compiler.compile)
        try:
            super().build_extensions()
        except Exception as error:
            if DEMANDED:
                raise
            self.extensions.clear()  # one module alone would not run
            sys.stderr.write(f"roquette: not compiled, it runs interpreted: {error}\n")


def compile_at_once(compile_one_by_one: Any, sources: list[str], **how: Any) -> list[str]:
    """The compiler's `compile`, with a thread for each C compiler that runs."""
    biggest_first = sorted(sources, key=os.path.getsize, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda source: compile_one_by_one([source], **how), biggest_first)
        return [file for files in built for file in files]


def find_extensions() -> list[Any]:
    """What to compile; nothing when only metadata are asked for."""
    if not wants_compiled() or not {"bdist_wheel", "build", "build_ext", "install"} & set(sys.argv):
        return []
    try:
        from mypyc.build import mypycify

        project = tomllib.loads(Path("pyproject.toml").read_text())
        hot = project["tool"]["roquette"]["compiled"]
        files = [f"src/{module.replace('.', '/')}.py" for module in hot]
        extensions = mypycify(files, opt_level="3", debug_level="0", multi_file=True)
        for extension in extensions if sys.platform == "linux" else ():
            extension.extra_compile_args += OWN_CALLS
        return extensions
    except (Exception, SystemExit) as error:  # mypyc ends the process when it finds a wrong type
        if DEMANDED:
            raise
        sys.stderr.write(f"roquette: not compiled, it runs interpreted: {error}\n")
        return []


DEMANDED = os.environ.get("ROQUETTE_COMPILE") == "1"
setup(ext_modules=find_extensions(), cmdclass={"build_ext": ParallelBuild})
