"""What every part is built from: settings, the data dir, clock, ids, news."""

from dataclasses import dataclass, field

from turnkeeper.clock import Clock, SystemClock
from turnkeeper.config import Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.ids import IdSource, RandomIds
from turnkeeper.settings import Settings
from turnkeeper.turns.open_texts import OpenTexts
from turnkeeper.turns.wakeups import LocalWakeups


@dataclass(frozen=True, slots=True)
class Base:
    """One process's own."""

    configuration: Configuration
    folder: DataDir
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=lambda: RandomIds(SystemClock()))
    wakeups: LocalWakeups = field(default_factory=LocalWakeups)
    texts: OpenTexts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", OpenTexts(self.wakeups))

    @property
    def settings(self) -> Settings:
        """The tree; each part is handed its own branch."""
        return self.configuration.settings
