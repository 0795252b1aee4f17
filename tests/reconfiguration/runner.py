"""Runs a case through the HTTP API of a service, and compares everything with what was to be expected."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from hived_extender.api.configuration import ConfigPushArgs, ConfigReport, ReportedJob
from hived_extender.api.inspection import ConfigClient, Inspector, PushAnswer
from hived_extender.api.paths import GROUPS_PATH, PHYSICAL_CLUSTER_PATH, VIRTUAL_CLUSTERS_PATH
from hived_extender.kube.client import PODS, pod_path
from tests.e2e.pods import POD_LIST
from tests.reconfiguration.cases import RESERVES, RUNS, Base, Case, Expected, Job, Rest
from tests.reconfiguration.cluster import CONFIG_MAP, CONFIG_MAPS, CaseCluster
from tests.reconfiguration.views import NAMESPACE, PREEMPTING, View, allocated, look, verdicts, written

FILE = "case.yaml"
WHO = "admin"
WITHIN_S = 5.0
LOOK_S = 0.02

Json = dict[str, Any]


class Runner:
    """Runs cases one after the other in one cluster."""

    def __init__(self, cluster: CaseCluster, base: Base) -> None:
        self.cluster = cluster
        self.base = base
        self._inspector = Inspector(cluster.url)
        self._client = ConfigClient(self._inspector)

    def expect_as_planned(self, name: str, case: Case) -> str:
        """Run the case, and compare everything with its expectations. Returns the configuration in force at its end."""
        self._reset()
        self._submit(self.base.jobs | case.jobs)
        began = self._look()
        expected_nodes = merged_view(self.base.nodes, case.began.nodes)
        expected_vcs = merged_view(self.base.vcs, case.began.vcs)
        assert (began.nodes, began.vcs) == (expected_nodes, expected_vcs), f"{name}: before the change"

        text = self.base.changed(case)
        after = self._change(text, case, began, merged_view(self.base.waiting, case.waiting))
        if after is not None:
            restarted = self._restart(case, after)
            if case.back is not None:
                waiting = merged_view(self.base.waiting, case.back.waiting)
                self._change(self.base.text, case.back, restarted, waiting)
        return self._client.current().text

    # The beginning

    def _reset(self) -> None:
        """No pods, and the base configuration in force, with a state that no earlier case has left its traces in."""
        for pod in self.cluster.kube.list_objects(PODS, Json).items:
            meta = pod["metadata"]
            self.cluster.kube.delete_pod(meta["namespace"], meta["name"], grace_period_s=0)
        self._until(lambda: not any(self._groups_and_pods()), lambda: "all pods to be gone")
        self._push(self.base.text, {}, allow_downgrade=False)

    def _groups_and_pods(self) -> tuple[object, object]:
        return self._inspector.groups(), self.cluster.kube.list_objects(PODS, Json).items

    def _submit(self, jobs: Mapping[str, Job]) -> None:
        for name, job in jobs.items():
            for manifest in job.manifests(name):
                self.cluster.kube.create(POD_LIST, manifest)
            self._await_rest(name, job)

    def _await_rest(self, name: str, job: Job) -> None:
        self._until(lambda: self._is_at_rest(name, job), lambda: f"{name} to be at rest")

    def _is_at_rest(self, name: str, job: Job) -> bool:
        pods = [self.cluster.kube.get(pod_path(NAMESPACE, f"{name}-{number}")) for number in range(job.pods)]
        if job.rest == RUNS:
            return all(pod["status"].get("phase") == "Running" for pod in pods)
        if job.rest == RESERVES:
            now = self._look()
            group = now.groups.get(name)
            is_one_leaving = any(pod.is_leaving for pod in now.pods.values())
            return group is not None and group.state == PREEMPTING and is_one_leaving
        return all(_is_told_to_wait(pod) for pod in pods)

    # A change

    def _change(self, text: str, expected: Expected, before: View, waiting: Mapping[str, Any]) -> View | None:
        """Plan and push a text; what the cluster looks like afterwards, None if it is refused."""
        plan = self._client.plan(text, FILE)
        if expected.refusals:
            self._check_refused(text, plan, expected.refusals)
            return None
        self._check_plan(plan, expected, waiting)
        self._check_needs_leave(text, plan, expected)
        outcome = self._push(text, plan.verdicts, allow_downgrade=expected.locks_out)
        after = self._look()
        assert outcome == plan
        self._check_actual(plan, expected, before, after)
        return self._await(expected, before)

    def _restart(self, case: Case, after: View) -> View:
        """Whoever runs has the same cells and places again."""
        self.cluster.restart()
        restarted = self._await(case.restarted, after)
        assert verdicts(allocated(after), restarted.groups) == {}
        return restarted

    def _check_plan(self, plan: ConfigReport, expected: Expected, waiting: Mapping[str, Any]) -> None:
        assert not plan.identical
        assert _told(plan.groups.affected, expected.affected) == expected.affected
        assert _told(plan.waiting, waiting) == waiting
        assert plan.needs_allow_downgrade == expected.locks_out
        assert plan.refusals == []

    def _check_refused(self, text: str, plan: ConfigReport, refusals: list[str]) -> None:
        found = "\n".join(plan.refusals)
        assert all(part in found for part in refusals), found
        answer = self._refused_push(text, {}, allow_downgrade=True)
        assert not answer.is_conflict
        assert all(part in answer.message for part in refusals), answer.message

    def _check_needs_leave(self, text: str, plan: ConfigReport, expected: Expected) -> None:
        """Nothing happens without agreement, nor without leave to lock out guaranteed work."""
        agreed = plan.verdicts
        if expected.locks_out:
            answer = self._refused_push(text, agreed, allow_downgrade=False)
            assert not answer.is_conflict
            assert answer.plan is not None
            assert answer.plan.groups == plan.groups
            assert "--allow-downgrade" in answer.message
        if any(verdict != "restored" for verdict, _ in expected.affected.values()):
            assert self._refused_push(text, {}, allow_downgrade=True).is_conflict

    def _refused_push(self, text: str, agreed: Mapping[str, str], *, allow_downgrade: bool) -> PushAnswer:
        before = self._everything()
        answer = self._client.push(self._wish(text, agreed, allow_downgrade))
        assert answer.version == 0
        assert self._everything() == before
        return answer

    def _check_actual(self, plan: ConfigReport, expected: Expected, before: View, after: View) -> None:
        """Each group fares as planned, and nobody's pods were touched."""
        found = verdicts(before.groups, after.groups)
        assert found == {written(name): verdict for name, verdict in plan.verdicts.items()}
        assert plan.groups.unaffected == len(before.groups) - len(found)
        for name, pod in before.pods.items():
            if pod.node or name.rpartition("-")[0] not in expected.starts:
                assert after.pods.get(name) == pod, f"pod {name}"

    def _await(self, expected: Rest, before: View) -> View:
        """Whoever may start has; nobody else has, and nobody's pods were moved."""
        wanted = merged_view(before.nodes, expected.nodes), merged_view(before.vcs, expected.vcs), expected.starts
        now = before

        def is_so() -> bool:
            nonlocal now
            last, now = now, self._look()
            if now != last or not now.leaving <= {pod.uid for pod in now.pods.values() if pod.is_leaving}:
                return False  # a look is several requests, and who has to leave is told so a little later
            found = now.nodes, now.vcs, _starts(before, now)
            return found == wanted and _placed(before).items() <= _placed(now).items()

        self._until(is_so, lambda: f"{wanted}, found {dict(now.nodes), dict(now.vcs), _starts(before, now)}")
        return now

    # Asking the service

    def _look(self) -> View:
        return look(self.cluster.kube, self._inspector)

    def _wish(self, text: str, agreed: Mapping[str, str], allow_downgrade: bool) -> ConfigPushArgs:
        version = self._client.current().version
        return ConfigPushArgs(text, FILE, "a case", WHO, version, dict(agreed), allow_downgrade)

    def _push(self, text: str, agreed: Mapping[str, str], *, allow_downgrade: bool) -> ConfigReport | None:
        """Push a text and check that it is in force, and known as such; returns what the answer says it did."""
        wish = self._wish(text, agreed, allow_downgrade)
        answer = self._client.push(wish)
        assert (answer.version, answer.message) == (wish.base_version + 1, "")
        current = self._client.current()
        assert (current.version, current.text) == (answer.version, text)
        newest = self._client.versions()[0]
        assert (newest.version, newest.who, newest.why) == (answer.version, WHO, wish.message)
        return answer.plan

    def _everything(self) -> tuple[object, ...]:
        """All that a refused push may not change, byte by byte."""
        paths = (GROUPS_PATH, PHYSICAL_CLUSTER_PATH, VIRTUAL_CLUSTERS_PATH, "/v1/config", "/v1/config/versions")
        stored = self.cluster.kube.get(f"{CONFIG_MAPS}/{CONFIG_MAP}")
        return *map(self._inspector.fetch, paths), stored, self.cluster.memory(), self._look().pods

    def _until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        until = time.monotonic() + WITHIN_S * self.cluster.patience
        while not is_so():
            if time.monotonic() > until:
                pytest.fail(f"waited for {what()}")
            time.sleep(LOOK_S)


def merged_view(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The state after a change: None stands for a group that is gone."""
    return {name: value for name, value in {**before, **change}.items() if value is not None}


def _told(entries: Sequence[ReportedJob], expected: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each entry; of the reason that part which was expected, if it is there."""
    found = {}
    for entry in entries:
        name = written(entry.name)
        part = expected.get(name, ("", ""))[1]
        found[name] = entry.verdict, part if part and part in entry.reason else entry.reason
    return found


def _starts(before: View, now: View) -> dict[str, str]:
    """Where jobs of one pod run that did not before."""
    return {
        name.rpartition("-")[0]: pod.node for name, pod in now.pods.items() if pod.node and not before.pods[name].node
    }


def _placed(view: View) -> dict[str, tuple[str, str]]:
    return {name: (pod.uid, pod.node) for name, pod in view.pods.items() if pod.node}


def _is_told_to_wait(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
