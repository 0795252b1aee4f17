"""Two machines that get the same stimuli and have to say the same, and the effects that they wait for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.loader import Configuration
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.wire import BindArgs
from hived_extender.machine.effects import (
    AnnotatePod,
    Announce,
    Awaits,
    BindPod,
    Effect,
    EvictPod,
    HoldBindings,
    Now,
    ReleaseBindings,
    TouchPod,
    Write,
)
from hived_extender.machine.machine import Machine
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import Configured, Stimulus, Switched, Wrote
from hived_extender.reconfiguration.successor import Successor

KEYS = (b"0123456789abcdef",)


class Broken(AssertionError):
    """Something does not hold."""


@dataclass(eq=False)
class Sent:
    """An effect under way, as each machine sent it. `wrote` is what came of it, None until it is carried out."""

    effects: tuple[Write, ...]
    term: int
    wrote: Wrote | None = None
    asked: BindArgs | None = None


class Machines:
    """Several machines that get the same stimuli and have to say the same; the first is looked at."""

    def __init__(self, count: int, policy: PreemptionPolicy, configuration: Configuration) -> None:
        self.prover = Prover(KEYS)
        spec, rules = configuration.cluster, configuration.rules
        self.all = [
            Machine(spec, Interpreter(spec, rules, NoObjects()), preemption=policy, prover=self.prover)
            for _ in range(count)
        ]
        self.first = self.all[0]
        self.at = 1000.0
        self.sent: list[Sent] = []
        self.held: set[str] = set()

    def tell(self, stimulus: Stimulus, *, asked: BindArgs | None = None) -> Any:
        """Hand one stimulus to all; returns the answer."""
        return self._tell([stimulus] * len(self.all), asked)

    def configure(self, configuration: Configuration) -> Any:
        """Have another configuration taken up; within a term, with a state that was built for it before."""
        if self.first.cache.core is None:
            return self.tell(Configured(configuration, ""))
        stimuli = []
        for machine in self.all:
            successor = Successor(configuration.cluster, rules=configuration.rules)
            successor.catch_up(machine.terms.inputs())
            successor.check()
            switched = Switched(configuration, successor.core, successor.losses, successor.unaccounted)
            stimuli.append(switched)
        return self._tell(stimuli, None)

    def answer(self, sent: Sent) -> Any:
        """Hand in what came of an effect."""
        assert sent.wrote is not None
        self.sent.remove(sent)
        is_current = self.first.term == sent.term
        wrote = [replace(sent.wrote, effect=effect, is_current=is_current) for effect in sent.effects]
        return self._tell(wrote, sent.asked)

    def _tell(self, stimuli: Iterable[Stimulus], asked: BindArgs | None) -> Any:
        now = Now(self.at, self.at)
        said = [machine.handle(stimulus, now) for machine, stimulus in zip(self.all, stimuli, strict=True)]
        answers, effects = [shown(answer) for answer, _ in said], [each for _, each in said]
        if any(one != answers[0] for one in answers) or any(one != effects[0] for one in effects):
            raise Broken(f"the same was told, and one machine said {said[0]}, another {said[1]}")
        for together in zip(*effects, strict=True):
            self._send(together)
        if isinstance(said[0][0], Awaits):
            awaited = tuple(answer.effect for answer, _ in said)
            self.sent.append(Sent(awaited, self.first.term, asked=asked))
        return said[0][0]

    def _send(self, together: tuple[Effect, ...]) -> None:
        effect = together[0]
        if isinstance(effect, HoldBindings):
            if self.held & set(effect.uids):
                raise Broken(f"{effect.uids} are to be held back, and {self.held} are already")
            self.held |= set(effect.uids)
        elif isinstance(effect, ReleaseBindings):
            self.held -= set(effect.uids)
        else:
            self.sent.append(Sent(together, self.first.term))


def shown(value: Any) -> Any:
    """A value that can be compared and read: an error by what it says, an effect by what it is about."""
    if isinstance(value, UserError):
        return type(value).__name__, value.code, value.message
    if isinstance(value, Awaits):
        return "awaits", value.effect
    if isinstance(value, TouchPod | EvictPod | BindPod | AnnotatePod | Announce):
        return type(value).__name__, value.pod.name
    return value
