"""Every header as data, named as in Apache: the Struct is the single source of wire names, types and defaults."""

from roquette.wire.headers.access import *
from roquette.wire.headers.ack import *
from roquette.wire.headers.client import *
from roquette.wire.headers.controller import *
from roquette.wire.headers.group import *
from roquette.wire.headers.offset import *
from roquette.wire.headers.operations import *
from roquette.wire.headers.pop import *
from roquette.wire.headers.pull import *
from roquette.wire.headers.query import *
from roquette.wire.headers.registration import *
from roquette.wire.headers.replica import *
from roquette.wire.headers.route import *
from roquette.wire.headers.send import *
from roquette.wire.headers.topic import *
from roquette.wire.headers.transaction import *
