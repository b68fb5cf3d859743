"""Requests to a controller: 1002, 1004 to 1006, 1011, and two of ours, 13001 and 13002."""

import msgspec

from roquette.wire.numbers import Int32, Int64


def _cluster_of(key: str) -> str:
    return key.partition("/")[2].rpartition("/")[0]


class GetRegisterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """several: other name servers are asked for the same record."""

    key: str
    several: bool = False

    @property
    def cluster_name(self) -> str:
        """Of the group whose record it is: rights are asked for it."""
        return _cluster_of(self.key)


class PutRegisterIfRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """The value is the body. revision: of the content to be replaced; 0: there is none. several: as in
    GET_REGISTER."""

    key: str
    revision: Int64
    several: bool = False

    @property
    def cluster_name(self) -> str:
        """Of the group whose record it is: rights are asked for it."""
        return _cluster_of(self.key)


class RegisterResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of GET_REGISTER: what stands there, the value in the body; 0: nothing does. Of PUT_REGISTER_IF: the new
    revision; 0: the content is another one."""

    revision: Int64


class ElectMasterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


class ElectMasterResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str | None = None


class GetReplicaInfoResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetaDataResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class CleanControllerBrokerDataRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0
