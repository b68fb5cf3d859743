"""Bugs to find: tables with one rule broken each. Those of the driver stand in takeover_world.py under their names."""

from typing import Any

from msgspec.structs import replace
from tests.replication.takeover_world import UNCONDITIONAL

from roquette.replication import effects as do
from roquette.replication.effects import Effect, Role, WriteKind
from roquette.replication.epochs import Cut, Go, Join
from roquette.replication.in_sync import InSync, Slave
from roquette.replication.record import GroupRecord
from roquette.replication.takeover import LONG_AGO, TakeOver


class AckLocal(TakeOver):
    """Acknowledges before the set has it."""

    def _need(self) -> set[int]:
        return {self.me}


class GrowUnasked(TakeOver):
    """A new member is not needed until the answer that it is one (Apache 5663)."""

    def _need(self) -> set[int]:
        return set(self.record.members) if self.record else set()


class ShrinkUnrecorded(TakeOver):
    """Acknowledges without a member before the record says that it is none."""

    def _need(self) -> set[int]:
        return set(self._asked.record.members) if self._asked else super()._need()


class LeaseFromAnswer(TakeOver):
    """Counts the lease from when it hears of it."""

    def saw(self, now_ms: int, *rest: Any) -> list[Effect]:
        before = self._lease_ms
        effects = super().saw(now_ms, *rest)
        if self._lease_ms not in (before, LONG_AGO):
            self._lease_ms = now_ms
        return effects


class IgnoreLease(TakeOver):
    """Goes on as master until it hears of another one."""

    def lease_left_ms(self, now_ms: int) -> int:
        return 1_000 if self.role is Role.MASTER else 0


class CutAtShorter(TakeOver):
    """Cuts at the end of the shorter log."""

    def welcome(self, *args: Any) -> Join:
        told = super().welcome(*args)
        _, theirs, their_end, mine, own_end, own_begin = args
        if not isinstance(told, Go | Cut):
            return told
        at = max(own_begin, min(own_end, their_end))
        return Cut(at, mine.joined(theirs, at)) if theirs.marks else told


class AnyReport(InSync):
    """Counts what was reported on older connections, and to older masterships."""

    def clear(self) -> None:
        pass

    def hello(self, who: int, connection: object) -> None:
        self._slaves.setdefault(who, Slave()).connection = connection

    def _current(self, slave: Slave, connection: object) -> bool:
        return True


class OldAck(TakeOver):
    """See `AnyReport`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._slaves = AnyReport(self.settings)


class GrowBehind(TakeOver):
    """Takes anybody into the set."""

    def _floor(self) -> int:
        return 0


class GrowBeforeEpoch(TakeOver):
    """Takes one into the set that has what this master has confirmed."""

    def _floor(self) -> int:
        return self.confirmed


class ElectBlind(TakeOver):
    """Becomes master whatever the record has become."""

    def tick(self, now_ms: int, own_end: int) -> list[Effect]:
        effects = super().tick(now_ms, own_end)
        if self._asked is not None and self._asked.kind is WriteKind.ELECT:
            return [
                do.Write(UNCONDITIONAL, e.record) if isinstance(e, do.Write) else e for e in effects
            ]
        return effects


class NeverInDoubt(TakeOver):
    """Stands after a power cut as if nothing were missing."""

    def _settle(self, record: GroupRecord) -> None:
        self.settled = True


class TrustsAnyStore(TakeOver):
    """Takes every store for the one that the record knows."""

    def _accused(self, record: GroupRecord) -> dict[str, Any]:
        return {}

    def _settle(self, record: GroupRecord) -> None:
        self._fault = ""
        super()._settle(record)


class StandsAlone(TakeOver):
    """Alone in the set it stands after a power cut, whatever another one had too."""

    def _ask_all(self, record: GroupRecord) -> dict[str, Any]:
        asks = super()._ask_all(record)
        return asks if "shared" in asks else {}


class NoDrop(TakeOver):
    """Believes what was reported before a power cut."""

    def saw(self, *args: Any) -> list[Effect]:
        lost, self._slaves.lost = self._slaves.lost, lambda who, connection: False  # type: ignore[method-assign]
        effects = super().saw(*args)
        self._slaves.lost = lost  # type: ignore[method-assign]
        return effects


class KeepsReleased(TakeOver):
    """Counts on its lease until it knows that the office was given back."""

    def tick(self, now_ms: int, own_end: int) -> list[Effect]:
        before = self._lease_ms
        effects = super().tick(now_ms, own_end)
        if (
            self._asked is not None
            and self._asked.kind is WriteKind.RELEASE
            and self._lease_ms == LONG_AGO
        ):
            self._lease_ms = before
        return effects


class GivesUp(TakeOver):
    """Asks for something else when no answer comes."""

    def tick(self, now_ms: int, own_end: int) -> list[Effect]:
        if self._asked is not None and now_ms - self._asked.sent_ms > 1_000:
            self._asked = None
        return super().tick(now_ms, own_end)


class StandsAtOnce(TakeOver):
    """Does not wait for the lease to end."""

    def _stand(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord] | None:
        self._beat_ms = min(self._beat_ms, now_ms - self.settings.ttl_ms // 2 - 1)
        return super()._stand(now_ms, record)


class FirstDoubtful(TakeOver):
    """All have lost power: whoever comes first is master."""

    def _stand(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord] | None:
        if self.me in record.doubtful and now_ms - self._beat_ms > self.settings.ttl_ms:
            doubtful = {w: v for w, v in record.doubtful.items() if w != self.me}
            return super()._stand(now_ms, replace(record, doubtful=doubtful))
        return super()._stand(now_ms, record)


PLANTED: dict[str, type[TakeOver]] = {
    "ack_local": AckLocal,
    "grow_unasked": GrowUnasked,
    "shrink_unrecorded": ShrinkUnrecorded,
    "lease_from_answer": LeaseFromAnswer,
    "ignore_lease": IgnoreLease,
    "cut_at_shorter": CutAtShorter,
    "old_ack": OldAck,
    "grow_behind": GrowBehind,
    "grow_before_epoch": GrowBeforeEpoch,
    "elect_blind": ElectBlind,
    "never_in_doubt": NeverInDoubt,
    "trusts_any_store": TrustsAnyStore,
    "stands_alone": StandsAlone,
    "no_drop": NoDrop,
    "keeps_released": KeepsReleased,
    "gives_up": GivesUp,
    "stands_at_once": StandsAtOnce,
    "first_doubtful": FirstDoubtful,
    # of the driver
    "cut_at_confirm": TakeOver,
    "data_before_epoch": TakeOver,
    "epochs_cut_first": TakeOver,
    "marked_before_settled": TakeOver,
    "read_unconfirmed": TakeOver,
    "report_first": TakeOver,
}
