"""Views: a file each, with the question that it answers. `PATHS` below /c/<context>, `show`, and, where there are any, `act`
(a POST of the same path), `STREAM` and `stream`, `FILES` (path -> the function that makes one)."""

import importlib
import pkgutil
from types import ModuleType


def all_views() -> list[ModuleType]:
    """Every view, by name."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]
