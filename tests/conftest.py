"""Property tests: few examples in the quick form, many with ROQUETTE_EXAMPLES=1000 (`make test-long`), no clock.

A test of its own that needs more, or may have fewer, says so with @settings.
"""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile(
    "roquette",
    max_examples=int(os.environ.get("ROQUETTE_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roquette")

# The session and the servers of tests/spark and tests/pipelines; made when a test asks for them.
pytest_plugins = ["tests.spark.fixtures"]
