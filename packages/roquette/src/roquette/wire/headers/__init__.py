"""Every header as data, named as in Apache: the Struct is the single source of wire names, types and defaults."""

from roquette.wire.headers.cluster import *
from roquette.wire.headers.messages import *
from roquette.wire.headers.operators import *
