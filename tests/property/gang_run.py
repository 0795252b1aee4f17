"""One random run: jobs in many dialects, and whatever may happen to their pods, nodes and scheduler.

After every operation all of `gang_rules` must hold.
"""

from collections.abc import Callable, Iterable

from hived_extender.jobs.kinds.description import ObjectRef
from tests.extender.machine.small_cluster import Json
from tests.property.choices import Choices
from tests.property.gang_cluster import Api, Replica
from tests.property.gang_jobs import Job, Template, make_job, manifest
from tests.property.gang_rules import Broken, Rules, picture, placed, places
from tests.property.gang_scheduler import KubeScheduler

OPERATIONS = {
    "create": 30, "describe": 8, "ask": 20, "turn": 30, "bind": 14, "hear": 6, "work": 12, "nudge": 10, "run": 8,
    "end": 8, "leave": 6, "delete": 6, "replace": 5, "ungate": 3, "break_node": 1, "repair_node": 4, "take_over": 3,
    "restart": 3, "forget_object": 1, "overdue": 2, "taint": 2, "untaint": 4, "refuse": 6, "let_in": 8,
}  # fmt: skip
"""The events that may happen, and how often."""

FICKLE = {
    "create": 20, "describe": 12, "ungate": 4, "ask": 24, "turn": 3, "bind": 12, "refuse": 14, "let_in": 12, "taint": 2,
    "untaint": 4, "hear": 6, "work": 12, "nudge": 8, "run": 4, "end": 8, "leave": 4, "delete": 2, "overdue": 3,
    "take_over": 1,
}  # fmt: skip
"""The same where pods are asked about one by one, and kube-scheduler often changes its mind in between."""

REST_TURNS = 40
"""After so many turns without anything new from outside, nothing may go on."""


class GangRun:
    """See the module. `log` has what was done, for whoever looks for a mistake."""

    def __init__(self, choices: Choices, jobs: Iterable[Job]) -> None:
        self.choices = choices
        self.jobs = list(jobs)
        self.log: list[str] = []
        self.api = Api()
        self.objects: dict[ObjectRef, Json] = {}
        self.templates: dict[str, Template] = {}  # by uid
        self.scheduler = KubeScheduler(choices, self.api, self.templates)
        self.rules = Rules(self.api, self.templates, self.scheduler)
        self._to_come = [each for job in self.jobs for each in job.templates]
        self._undescribed = {ref: (job, text) for job in self.jobs for ref, text in job.objects.items()}
        self._count = 0
        self.leader, self.standby = self._replica(), self._replica()
        self.leader.lead()

    def __str__(self) -> str:
        """The jobs, and what happened."""
        jobs = [
            f"{job.name}: {[*job.gangs.values()]} {[(each.name, each.gpus) for each in job.templates]}"
            for job in self.jobs
        ]
        return "\n".join([*jobs, *self.log])

    @property
    def is_expecting(self) -> bool:
        """Are there pods or objects that are not created yet, or pods that are held?"""
        return bool(self._to_come or self._undescribed or self._gated())

    # What happens

    def step(self, operations: dict[str, int] = OPERATIONS) -> None:
        """Do one of these things, chosen by chance, and check all rules."""
        kind = self.choices.weighted(operations)
        if kind == "create":
            for _ in range(self.choices.integer(1, 3)):
                self._do(kind, self.create)
        elif kind == "turn":
            for pod in self.choices.shuffled(self._unbound()):
                self._do("ask", lambda pod=pod: self.ask(pod))
        else:
            self._do(kind, getattr(self, kind))
        if kind != "hear" and self.choices.chance(70):
            self._do("hear", self.leader.hear)

    def _do(self, what: str, action: Callable[[], object]) -> None:
        before = placed(self.leader)
        self.log.append(what)
        told = action()
        if told:
            self.log[-1] += f" {told}"
        self.rules.check(self.leader, before, is_new=what in ("take_over", "restart"))

    def create(self) -> str:
        """The next pod of any job comes."""
        if not self._to_come:
            return ""
        template = self._to_come.pop(self.choices.integer(0, len(self._to_come) - 1))
        return self._create(template, is_gated=self.choices.chance(8))

    def describe(self) -> str:
        """The object comes that describes a gang; there may be pods of it, or none yet."""
        if not self._undescribed:
            return ""
        ref = self.choices.pick(sorted(self._undescribed))
        self.objects[ref] = self._undescribed.pop(ref)[1]
        self._tell_object(ref)
        return str(ref)

    def forget_object(self) -> str:
        """An object of a gang is deleted."""
        if not self.objects:
            return ""
        ref = self.choices.pick(sorted(self.objects))
        job = next(job for job in self.jobs if ref in job.objects)
        self._undescribed[ref] = job, self.objects.pop(ref)
        self._tell_object(ref)
        return str(ref)

    def ask(self, pod: Json | None = None) -> str:
        """kube-scheduler asks about a pod, and binds it if it may: at once, or some time later."""
        answers = self.scheduler.answers
        pods = [one for one in self._unbound() if one["metadata"]["uid"] not in answers and pod in (None, one)]
        if not pods:
            return ""
        pod = self.choices.pick(pods)
        said = self.scheduler.ask(self.leader, pod)
        uid = pod["metadata"]["uid"]
        if uid in answers and self.choices.chance(60):
            said += f", {self.bind_answered(uid)}"
        return said

    def bind(self) -> str:
        """kube-scheduler binds a pod that it was given a node for."""
        answers = self.scheduler.answers
        return self.bind_answered(self.choices.pick(sorted(answers))) if answers else ""

    def hear(self) -> str:
        """The replicas hear of some of what happened."""
        self.standby.hear(self.choices.integer(1, 10))
        count = self.choices.integer(1, 4)
        self.leader.hear(count)
        return str(count)

    def work(self) -> None:
        """The leader writes some of what it has to write."""
        self.leader.work(self.choices.integer(1, 3))

    def nudge(self) -> None:
        """The leader tries the pods that wait."""
        known = self.leader.service.machine._retries._refusals
        self.leader.nudge([uid for uid in known if self.choices.chance(70)])

    def overdue(self) -> None:
        """Time is up for something that the leader waits for."""
        due = self.leader.timers()
        if due:
            self.leader.fire(self.choices.pick(due))

    def run(self) -> str:
        """A bound pod begins to run."""
        return self._become(self._bound("Pending"), "Running")

    def end(self) -> str:
        """A pod is over, well or not."""
        return self._become(self._bound("Running", "Pending"), self.choices.pick(("Succeeded", "Failed")))

    def leave(self) -> str:
        """A pod that was told to leave is gone."""
        leaving = [name for name, pod in self.api.pods.items() if "deletionTimestamp" in pod["metadata"]]
        return self._remove(self.choices.pick(leaving)) if leaving else ""

    def delete(self) -> str:
        """Somebody deletes a pod."""
        return self._remove(self.choices.pick(list(self.api.pods))) if self.api.pods else ""

    def replace(self) -> str:
        """A controller creates a pod anew under the same name."""
        if not self.api.pods:
            return ""
        name = self.choices.pick(list(self.api.pods))
        template = self.templates[self.api.pods[name]["metadata"]["uid"]]
        self._remove(name)
        return self._create(template)

    def ungate(self) -> str:
        """A scheduling gate is taken off."""
        if not self._gated():
            return ""
        pod = self.choices.pick(self._gated())
        del pod["spec"]["schedulingGates"]
        self.api.touch(pod)
        return str(pod["metadata"]["name"])

    def break_node(self) -> str:
        """A node turns bad."""
        return self._set_node([name for name, is_healthy in self.scheduler.nodes.items() if is_healthy], False)

    def repair_node(self) -> str:
        """A node turns good."""
        return self._set_node([name for name, is_healthy in self.scheduler.nodes.items() if not is_healthy], True)

    def taint(self) -> str:
        """A node gets a taint, which some pods tolerate."""
        return self._set_taint([name for name in self.scheduler.nodes if name not in self.scheduler.tainted], True)

    def untaint(self) -> str:
        """A node loses it."""
        return self._set_taint(sorted(self.scheduler.tainted), False)

    def refuse(self) -> str:
        """kube-scheduler refuses some node to a pod, for a reason of its own: where its place is, or any."""
        if not self._unbound():
            return ""
        unbound = [pod["metadata"]["uid"] for pod in self._unbound()]
        having = [(uid, node) for uid, (node, _) in sorted(places(self.leader).items()) if node and uid in unbound]
        if having and self.choices.chance(70):
            refused = self.choices.pick(having)
        else:
            refused = self.choices.pick(unbound), self.choices.pick(list(self.scheduler.nodes))
        self.scheduler.refused.add(refused)
        return str(refused)

    def let_in(self) -> str:
        """It does so no more."""
        if not self.scheduler.refused:
            return ""
        refused = self.choices.pick(sorted(self.scheduler.refused))
        self.scheduler.let_in(*refused)
        return str(refused)

    def take_over(self) -> None:
        """The other replica leads from now on, and this one follows."""
        self._succeed(self.leader.follow)

    def restart(self) -> None:
        """The leader dies, and another that was started anew leads."""
        self.standby.close()
        self.standby = self._replica()
        self._succeed(self._replace_leader)

    def _replace_leader(self) -> None:
        self.leader.close()
        self.leader = self._replica()

    def _replica(self) -> Replica:
        return Replica(self.api, [self.scheduler.node(name) for name in self.scheduler.nodes], self.objects)

    def _succeed(self, end: Callable[[], None]) -> None:
        self.leader.hear()
        before = picture(self.leader)
        end()
        self.leader, self.standby = self.standby, self.leader
        self.leader.lead()
        self.rules.check_successor(self.leader, before)

    # Coming to rest

    def settle(self) -> None:
        """Nothing more comes from outside, nodes are good and refused to nobody, and all that was begun is ended.

        First kube-scheduler asks about new pods alone, and those that it was woken for. Nobody may be left who could
        start, as `gang_rules` counts, or has a place and is not bound. Asking about everybody once more must not start
        anybody.
        """
        for name, is_healthy in list(self.scheduler.nodes.items()):
            if not is_healthy:
                self._do("repair_node", lambda name=name: self._set_node([name], True))
        for name in sorted(self.scheduler.tainted):
            self._do("untaint", lambda name=name: self._set_taint([name], False))
        for refused in sorted(self.scheduler.refused):
            self.scheduler.let_in(*refused)
        self.rest(self.scheduler.is_due)
        self.rules.check_nobody_could_start(self.leader, self.jobs, self.objects)
        before = placed(self.leader)
        self.rest(lambda pod: True)
        forgotten = placed(self.leader) - before
        if forgotten:
            raise Broken(f"{sorted(forgotten)} could have started, but kube-scheduler was not told to ask")

    def rest(self, is_asked: Callable[[Json], bool]) -> None:
        """Go on until nothing changes any more; kube-scheduler asks about pods that `is_asked` says."""
        for _ in range(REST_TURNS):
            seen = self._moment()
            self._do("work", self.leader.work)
            self._do("hear", self._hear_all)
            for name in [name for name, pod in self.api.pods.items() if "deletionTimestamp" in pod["metadata"]]:
                self._do("leave", lambda name=name: self._remove(name))
            self._do("hear", self._hear_all)
            self._do("sweep", self.leader.sweep)
            self._bind_all()
            for pod in self.choices.shuffled(self._unbound()):
                if pod["metadata"]["uid"] not in self.scheduler.answers and is_asked(pod):
                    self._do("ask", lambda pod=pod: self.scheduler.ask(self.leader, pod))
            self._bind_all()
            self._do("hear", self._hear_all)
            if self._moment() == seen and not self.leader.is_busy:
                if not self.scheduler.answers and not self.rules.held(self.leader):
                    return
                self._bind_all(is_patient=False)
                for key in self.leader.timers()[:1]:
                    self._do("time passes", lambda key=key: self.leader.fire(key))
        raise Broken(
            f"it does not come to rest, and these have places and are not bound: {self.rules.held(self.leader)}"
        )

    def _moment(self) -> object:
        """Differs if anything goes on."""
        pods = sorted((pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in self.api.pods.values())
        return pods, sorted(placed(self.leader)), len(self.scheduler.asked), {**self.scheduler.answers}

    def _bind_all(self, *, is_patient: bool = True) -> None:
        for uid in sorted(self.scheduler.answers):
            self._do("bind", lambda uid=uid: self.scheduler.bind(self.leader, uid, is_patient=is_patient))

    def _hear_all(self) -> None:
        self.leader.hear()
        self.standby.hear()

    # In detail

    def bind_answered(self, uid: str) -> str:
        """kube-scheduler binds a pod, or loses patience if its binding is held back."""
        return self.scheduler.bind(self.leader, uid, is_patient=self.choices.chance(60))

    def _create(self, template: Template, *, is_gated: bool = False) -> str:
        self._count += 1
        uid = f"{template.name}.{self._count}"
        self.templates[uid] = template
        self.api.add(manifest(template, uid, self._count // 2, is_gated=is_gated))
        return uid

    def _remove(self, name: str) -> str:
        self.scheduler.gone(self.api.pods[name]["metadata"]["uid"])
        self.api.remove(name)
        return name

    def _become(self, pods: list[Json], phase: str) -> str:
        if not pods:
            return ""
        pod = self.choices.pick(pods)
        pod["status"]["phase"] = phase
        self.api.touch(pod)
        return f"{pod['metadata']['name']} {phase}"

    def _set_node(self, names: list[str], is_healthy: bool) -> str:
        if not names:
            return ""
        name = self.choices.pick(names)
        self.scheduler.nodes[name] = is_healthy
        return self._tell_node(name)

    def _set_taint(self, names: list[str], is_tainted: bool) -> str:
        if not names:
            return ""
        name = self.choices.pick(names)
        (self.scheduler.tainted.add if is_tainted else self.scheduler.tainted.discard)(name)
        return self._tell_node(name)

    def _tell_node(self, name: str) -> str:
        for replica in (self.leader, self.standby):
            replica.service.node_seen(self.scheduler.node(name))
        return name

    def _tell_object(self, ref: ObjectRef) -> None:
        for replica in (self.leader, self.standby):
            replica.service.object_seen(ref)

    def _unbound(self) -> list[Json]:
        """Pods that kube-scheduler would ask about."""
        return [
            pod
            for pod in self.api.pods.values()
            if not pod["spec"]["nodeName"] and not pod["spec"].get("schedulingGates")
        ]

    def _gated(self) -> list[Json]:
        return [pod for pod in self.api.pods.values() if pod["spec"].get("schedulingGates")]

    def _bound(self, *phases: str) -> list[Json]:
        pods = self.api.pods.values()
        return [pod for pod in pods if pod["spec"]["nodeName"] and pod["status"]["phase"] in phases]


def make_run(choices: Choices, least: int = 3, most: int = 6) -> GangRun:
    """A few jobs, none of whose pods are created yet."""
    return GangRun(choices, [make_job(choices, f"j{number}") for number in range(choices.integer(least, most))])
