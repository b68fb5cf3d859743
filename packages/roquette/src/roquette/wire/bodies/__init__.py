"""JSON bodies as Structs: field names are Apache's, in snake case here and in camel case on the wire."""

from roquette.wire.bodies.access import *
from roquette.wire.bodies.clients import *
from roquette.wire.bodies.controller import *
from roquette.wire.bodies.data_version import *
from roquette.wire.bodies.group_config import *
from roquette.wire.bodies.pop import *
from roquette.wire.bodies.progress import *
from roquette.wire.bodies.registration import *
from roquette.wire.bodies.replication import *
from roquette.wire.bodies.route import *
from roquette.wire.bodies.topic_config import *
