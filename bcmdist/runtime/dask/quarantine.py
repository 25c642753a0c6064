"""Who is to blame when workers die: partitions are suspected, tried alone, and given up.

A worker that dies makes suspects of all partitions it had. At the end of the work each is tried alone, on a worker
that has nothing else. Whoever survives is innocent. Whoever's worker dies again has killed two workers and is
convicted, unless workers die for other reasons too: then it is tried again, up to `MOST_TRIALS` times.

Events in, decisions out; no clock and no cluster here.
"""

from collections import deque
from dataclasses import dataclass

from bcmdist.data.partition import Work
from bcmdist.runtime.task import Task

MOST_TRIALS = 5  # alone, of a partition on a cluster whose workers die for other reasons


@dataclass(eq=False)
class Suspect:
    """A partition that a worker had when it died."""

    task: Task
    part: Work
    deaths: int = 0
    """workers that died with it"""
    trials: int = 0
    """of them, alone"""


class Quarantine:
    """Suspects and the deaths that they may have caused.

    A death is explained as long as one of its suspects has not survived a trial.
    """

    def __init__(self):
        self.waiting: deque[Suspect] = deque()
        """to be tried"""
        self.convicted: list[Suspect] = []
        """killed alone; the verdict stands when everything else is done"""
        self._deaths: dict[str, list[Suspect]] = {}

    @property
    def deaths(self) -> set[str]:
        """Deaths that were reported here."""
        return set(self._deaths)

    def accuse(self, task, parts, death) -> None:
        """A worker died (`death` names the event) when it had these partitions, among others."""
        for part in parts:
            suspect = Suspect(task, part)
            self.waiting.append(suspect)
            self._blame(suspect, death)

    def killed(self, suspect, death) -> None:
        """It was tried alone, and the worker died."""
        suspect.trials += 1
        self.convicted.append(suspect)
        self._blame(suspect, death)

    def survived(self, suspect) -> None:
        """It was tried alone and came through: some deaths lose their explanation."""
        for suspects in self._deaths.values():
            if suspect in suspects:
                suspects.remove(suspect)

    def others_kill(self, died) -> bool:
        """Whether one of these deaths on the cluster is without an explanation."""
        return any(not self._deaths.get(death) for death in died)

    def judge(self, died) -> list[Suspect]:
        """The convicted who are guilty, where these are the deaths on the cluster; the others are tried again."""
        others_kill = self.others_kill(died)
        guilty = [s for s in self.convicted if not others_kill or s.trials >= MOST_TRIALS]
        self.waiting.extend(s for s in self.convicted if s not in guilty)
        self.convicted = []
        return guilty

    def _blame(self, suspect, death):
        suspect.deaths += 1
        self._deaths.setdefault(death, []).append(suspect)
