"""JSON bodies as Structs: field names are Apache's, in snake case here and in camel case on the wire."""

from roquette.wire.bodies.clients import *
from roquette.wire.bodies.progress import *
from roquette.wire.bodies.route import *
from roquette.wire.bodies.tables import *
