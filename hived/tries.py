"""How much a decision may search before it gives up (rules 12.8, 19.7)."""

from dataclasses import dataclass

MOST_TRIED = 1024
"""So many times a pod is taken back from where it was tried, for one decision; an ordinary one needs that never.

As many domains of pods that belong together are tried in vain."""

MOST_IN_A_SEARCH = 256
"""The same for one of the searches of a decision, so that an easier one may follow."""


@dataclass(slots=True)
class Budget:
    """How many choices of a kind failed in a decision, and whether a search was given up for it (rule 12.8)."""

    most: int
    count: int = 0
    end: int = 0
    gave_up: bool = False

    def start(self) -> None:
        """Begin another search."""
        self.end = min(self.count + MOST_IN_A_SEARCH, self.most)

    def are_over(self) -> bool:
        """Is this search to be given up?"""
        self.gave_up |= self.count >= self.end
        return self.count >= self.end


class Tries:
    """The tries of one decision, at most so many of each kind."""

    def __init__(self, most: int = MOST_TRIED) -> None:
        self.most = most
        self.pods = Budget(most)  # places of pods
        self.domains = Budget(most)  # domains of `Together` rules, each tried with all that follows
        self._parts: list[Tries] = []

    def fewer(self, most: int) -> "Tries":
        """So many tries, for a part of the decision of which each try takes longer; this one gives up if that does."""
        part = Tries(min(most, self.most))
        self._parts.append(part)
        return part

    @property
    def gave_up(self) -> bool:
        """Was any search of the decision given up?"""
        return self.given_up_after > 0

    @property
    def given_up_after(self) -> int:
        """After how many tries a search was given up, 0 if none was."""
        own = self.most if self.pods.gave_up or self.domains.gave_up else 0
        return max([own, *(part.given_up_after for part in self._parts)])
