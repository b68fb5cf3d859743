"""Runs `roquette` with small bounds of the receipts that are renewed: PYTHON few_receipts.py MOST LITTLE ROQUETTE WORDS...

They are constants, and of the interpreted form alone can be others.
"""

import runpy
import sys

from roquette.proxy import renewals

if __name__ == "__main__":
    assert renewals.__file__.endswith(".py")
    most, little, *words = sys.argv[1:]
    renewals.MOST, renewals.LITTLE = int(most), int(little)  # type: ignore[misc]
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
