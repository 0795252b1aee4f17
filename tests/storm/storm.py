"""Random pushes to a real service under load: `python -m tests.storm.storm --valid 200 --invalid 200`.

An embedded cluster with its API server, its scheduler loop and our service over HTTP. While pods come and end and nodes
fail, one sound configuration after another is planned and pushed: what was planned has to come about, no device may be
two pods', and no pod that runs may be touched. Then, in a calm, pushes that must be refused: nothing may change.

Documents and jobs follow from the seed; how threads interleave does not.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hived_extender.reconfiguration.judging import Verdict
from tests.driver import add_any_seed, new_parser, say, seeded
from tests.property.choices import Choices, Seeded
from tests.storm.busy_cluster import CONFIG, BusyCluster
from tests.storm.changes import changed
from tests.storm.documents import first_document, text_of
from tests.storm.mistakes import Mistake, mistaken_body, mistaken_text, push_body
from tests.storm.rules import Broken, check_untouched, places

MOST_TRIES = 25
"""To push one document; each is planned anew if something else would become of running work than was agreed to."""

CALM_EVERY = 5
"""One push in so many happens while nothing else does, so that all that was planned can be compared."""

BATCH = 20
"""Pushes that are refused come in calms of so many."""

Json = dict[str, Any]


@dataclass
class Tally:
    """The events so far."""

    pushed: int = 0
    calm: int = 0
    replans: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    unaffected: int = 0
    untouched: int = 0
    downgrades: int = 0
    waited_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(self.verdicts.items()))
        waits = sorted(self.waited_s) or [0.0]
        middle, longest = waits[len(waits) // 2] * 1e3, waits[-1] * 1e3
        return (
            f"{self.pushed} valid pushes, {self.calm} of them in a calm, {self.downgrades} with allowDowngrade, "
            f"{self.replans} planned anew\n"
            f"groups: {self.unaffected} unaffected, {verdicts or 'none affected'}; "
            f"{self.untouched} times a running pod went on\n"
            f"requests waited {middle:.1f} ms in the middle, {longest:.1f} ms at most\n"
            f"{self.refused.total()} refused pushes of {len(self.refused)} kinds, nothing changed\n"
        )


class Storm:
    """One cluster and one service; `tally` counts what has been found to be as it should."""

    def __init__(self, busy: BusyCluster, seed: int) -> None:
        self.tally = Tally()
        self._choices = Choices(Seeded(seed))
        self._busy = busy
        self._document = first_document()

    def push_valid(self, count: int) -> None:
        """Push so many sound configurations. Raises Broken."""
        for number in range(count):
            if number % CALM_EVERY == CALM_EVERY - 1:
                with self._busy.calm():
                    self._push(is_calm=True)
            else:
                self._push(is_calm=False)

    def push_invalid(self, count: int) -> None:
        """Push so many that have to be refused. Raises Broken."""
        while count:
            batch = min(count, BATCH)
            count -= batch
            with self._busy.calm():
                for _ in range(batch):
                    self._push_mistake()

    # One sound push

    def _push(self, *, is_calm: bool) -> None:
        document = changed(self._choices, self._document)
        text = text_of(document)
        before = places(self._busy.traffic.pods())
        pushes = self._busy.switches.count
        plan, answer = self._push_until_agreed(text)
        if self._busy.switches.count != pushes + 1:
            raise Broken(f"{self._busy.switches.count - pushes} switches for one push")
        outcome = answer["outcome"]
        self._check_outcome(plan, outcome, is_calm=is_calm)
        if is_calm:
            self._check_inspected(outcome)
        self._check_config(text, answer["version"])
        pods = self._busy.traffic.pods()
        places(pods)
        self.tally.untouched += check_untouched(before, pods, self._busy.traffic.ended | self._busy.switches.victims)
        self._busy.check_state(pods if is_calm else None)
        self._document = self._busy.traffic.document = document
        self.tally.pushed += 1
        self.tally.calm += is_calm

    def _push_until_agreed(self, text: str) -> tuple[Json, Json]:
        """Plan, agree, push; again if something else would happen by then. Returns the last plan and the answer."""
        for _ in range(MOST_TRIES):
            plan = self._busy.ok("POST", f"{CONFIG}/plan", json.dumps({"text": text}).encode())
            if plan["refusals"]:
                raise Broken(f"a sound text is refused: {plan['refusals']}\n{text}")
            agreed = {one["name"]: one["verdict"] for one in plan["groups"]["affected"]}
            may = plan["needsAllowDowngrade"]
            body = push_body(text, plan["baseVersion"], agreed=agreed, allowDowngrade=may)
            code, answer = self._busy.call("POST", CONFIG, body)
            if code == 200:
                self.tally.downgrades += may
                return plan, answer
            is_outdated = code == 409 or (code == 422 and answer["plan"]["needsAllowDowngrade"] and not may)
            if not is_outdated:
                raise Broken(f"a sound text is refused: {code} {answer}\n{text}")
            self.tally.replans += 1
        raise Broken(f"{MOST_TRIES} plans were outdated before they could be pushed")

    def _check_outcome(self, plan: Json, outcome: Json, *, is_calm: bool) -> None:
        """The agreed verdicts are those of the answer and the true ones, for all groups that were still there."""
        happened = self._busy.switches.verdicts()
        there = self._busy.switches.before.keys()
        for what, report in (("planned", plan), ("answered", outcome)):
            said = {one["name"]: one["verdict"] for one in report["groups"]["affected"]}
            for name in sorted(there):
                found, wanted = happened.get(name, ""), said.get(name, "")
                is_harmless = {found, wanted} <= {"", Verdict.RESTORED.value}
                if found != wanted and (is_calm or not is_harmless):
                    before, after = self._busy.switches.before[name], self._busy.switches.after.get(name)
                    became = f"{found or 'nothing'}: {before} -> {after}"
                    raise Broken(f"{what} for {name}: {wanted or 'nothing'}, happened: {became}")
        if is_calm and plan["groups"] != outcome["groups"]:
            raise Broken(f"planned {plan['groups']}, answered {outcome['groups']}")
        self.tally.verdicts.update(happened.values())
        self.tally.unaffected += len(there) - len(happened)

    def _check_inspected(self, outcome: Json) -> None:
        """In a calm the inspect API shows exactly what the answer says."""
        shown = self._busy.groups()
        for one in outcome["groups"]["affected"]:
            group = shown.get(one["name"])
            is_so = {
                Verdict.UNACCOUNTED.value: group is None or "physicalPlacement" not in group,
                Verdict.PARTLY_UNACCOUNTED.value: group is not None and "physicalPlacement" in group,
                Verdict.LAZILY_PREEMPTED.value: group is not None and "virtualPlacement" not in group,
                Verdict.PREEMPTION_CANCELLED.value: group is None or group["state"] != "Preempting",
                Verdict.RESTORED.value: group is not None and "physicalPlacement" in group,
            }[one["verdict"]]
            if not is_so:
                raise Broken(f"answered {one}, and the inspect API shows {group}")

    def _check_config(self, text: str, version: int) -> None:
        shown = self._busy.ok("GET", CONFIG)
        if (shown["text"], shown["version"]) != (text, version):
            raise Broken(f"version {version} was pushed, version {shown['version']} is shown, or another text")

    # One that is refused

    def _push_mistake(self) -> None:
        mistake = self._mistake()
        before = self._busy.everything()
        code, answer = self._busy.call("POST", CONFIG, mistake.body)
        if code not in mistake.codes:
            raise Broken(f"{mistake.name}: {code} {answer}, expected {mistake.codes}\n{mistake.body[:3000]!r}")
        after = self._busy.everything()
        differing = [name for name, value in before.items() if after[name] != value]
        if differing:
            raise Broken(f"{mistake.name} was refused, but {', '.join(differing)} changed\n{mistake.body[:3000]!r}")
        self.tally.refused[mistake.name] += 1

    def _mistake(self) -> Mistake:
        choices, version = self._choices, self._busy.ok("GET", CONFIG)["version"]
        make = choices.weighted({"text": 6, "body": 2, "version": 1, "agreed": 1, "downgrade": 1})
        if make == "text":
            return mistaken_text(choices, self._document, version)
        if make == "body":
            return mistaken_body(choices, self._document, version)
        text = text_of(changed(choices, self._document))
        if make == "version":
            other = choices.pick([version - 1, version + 1, 10**6])
            return Mistake("another version", push_body(text, other or 10**6), (409,))
        plan = self._busy.ok("POST", f"{CONFIG}/plan", json.dumps({"text": text}).encode())
        agreed = {one["name"]: one["verdict"] for one in plan["groups"]["affected"]}
        if make == "downgrade" and plan["needsAllowDowngrade"]:
            return Mistake("without allowDowngrade", push_body(text, version, agreed=agreed), (422,))
        groups = sorted(self._busy.groups())
        harmed = [name for name, verdict in agreed.items() if verdict != Verdict.RESTORED.value]
        if harmed:
            agreed.pop(choices.pick(harmed))
        elif groups:
            agreed[choices.pick(groups)] = Verdict.LAZILY_PREEMPTED.value
        else:
            return mistaken_text(choices, self._document, version)
        return Mistake("something else agreed to", push_body(text, version, agreed=agreed, allowDowngrade=True), (409,))


def main() -> None:
    parser = new_parser("tests.storm.storm", __doc__)
    parser.add_argument("--valid", type=int, default=200, help="pushes that come into force [default: %(default)s]")
    parser.add_argument("--invalid", type=int, default=200, help="that are refused [default: %(default)s]")
    add_any_seed(parser)
    options = parser.parse_args()
    with seeded(options) as seed, BusyCluster.running(seed) as busy:
        storm = Storm(busy, seed)
        try:
            while storm.tally.pushed < options.valid or storm.tally.refused.total() < options.invalid:
                storm.push_valid(min(BATCH, options.valid - storm.tally.pushed))
                storm.push_invalid(min(BATCH, options.invalid - storm.tally.refused.total()))
                say(f"{storm.tally.pushed} + {storm.tally.refused.total()}")
        finally:
            storm.tally.waited_s = busy.switches.waited_s
            print(storm.tally)


if __name__ == "__main__":
    main()
