"""OpenPAI jobs become pods by OpenPAI's rules, and a bad job is answered with its place."""

import json
from dataclasses import replace

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_jobs.kinds import plan_jobs
from hived_jobs.policies import Phase, summary
from hived_jobs.records import record_of
from hived_jobs.submission import Submission
from tests.job_files import plan_file
from tests.places import SHARED

LAB = SHARED / "lab"

JOB = """\
protocolVersion: 2
name: train
type: job
prerequisites:
- {name: torch, type: dockerimage, uri: example/torch}
taskRoles:
  worker:
    instances: %(instances)s
    dockerImage: torch
    resourcePerInstance: {%(resources)s}
    commands: [run]
defaults: {virtualCluster: %(vc)s}
extras:
  gangAllocation: %(gang)s
  hivedScheduler: {%(hived)s}
"""


def job(instances="2", resources="gpu: 1", vc="research", gang="true", hived="jobPriorityClass: prod") -> str:
    return JOB % {"instances": instances, "resources": resources, "vc": vc, "gang": gang, "hived": hived}


def specs(file: str, submission: Submission) -> list[dict]:
    """The scheduling specs of a file's pods, each checked by the reader that the scheduler uses."""
    pods, _ = plan_file(file, submission)
    for pod in pods:
        pod_request("uid", pod.manifest["metadata"]["name"], "default", pod.manifest["metadata"]["annotations"])
    return [json.loads(pod.manifest["metadata"]["annotations"][SCHEDULING_SPEC]) for pod in pods]


def refusal(file: str, submission: Submission) -> str:
    with pytest.raises(UserError) as caught:
        plan_file(file, submission)
    return caught.value.message.removeprefix(file)


@pytest.mark.parametrize(("word", "priority"), [("crit", 120), ("prod", 100), ("test", 10), ("oppo", -1)], ids=str)
def test_a_priority_word_means_its_number_for_hived_and_for_kubernetes(word, priority, write, submission):
    pods, _ = plan_file(write(job(hived=f"jobPriorityClass: {word}")), submission)
    spec = json.loads(pods[0].manifest["metadata"]["annotations"][SCHEDULING_SPEC])
    name = "hived-opportunistic" if priority == -1 else f"hived-priority-{priority}"
    assert (spec["priority"], pods[0].priority, pods[0].manifest["spec"]["priorityClassName"]) == (
        priority,
        priority,
        name,
    )


@pytest.mark.parametrize("name", ["no", "010", "1e3", "12-30", "0x1F", "2024-01-02", "null"])
def test_names_are_kept_as_written(name, write, submission):
    cluster = submission.cluster
    virtual_clusters = {name: replace(cluster.virtual_clusters["research"], name=name, pinned_cell_ids=(name,))}
    pool = cluster.physical_cells[0]
    pinned = replace(pool, children=(*pool.children[:2], replace(pool.children[2], pinned_cell_id=name)))
    cluster = replace(cluster, virtual_clusters=virtual_clusters, physical_cells=(pinned, *cluster.physical_cells[1:]))
    written = f"'{name}'" if name == "null" else name
    text = job(
        "1", vc=written, hived=f"taskRoles: {{worker: {{pinnedCellId: {written}, affinityGroupName: {written}}}}}"
    )
    text = text.replace("name: train", f"name: {written}").replace("worker", written).replace(": torch", f": {written}")
    pods, _ = plan_file(write(text), replace(submission, cluster=cluster))
    manifest = pods[0].manifest
    labels = manifest["metadata"]["labels"]
    assert [labels[key] for key in ("jobName", "virtualCluster", "taskRole")] == [name] * 3
    spec = json.loads(manifest["metadata"]["annotations"][SCHEDULING_SPEC])
    assert (spec["virtualCluster"], spec["pinnedCellId"]) == (name, name)
    assert spec["affinityGroup"]["name"] == f"{submission.user}~{name}/{name}"
    assert manifest["spec"]["containers"][0]["image"] == "example/torch"


def test_a_sku_type_is_kept_as_written(write, submission):
    cluster = submission.cluster
    types = cluster.cell_types | {"SMALL-NODE": replace(cluster.cell_types["SMALL-NODE"], child_type="010")}
    cluster = replace(cluster, cell_types=types, sku_types=cluster.sku_types | {"010": cluster.sku_types["SMALL"]})
    file = write(job("1", hived="taskRoles: {worker: {skuType: 010}}"))
    assert specs(file, replace(submission, cluster=cluster))[0]["leafCellType"] == "010"


def test_the_default_priority_is_test(write, submission):
    assert specs(write(job(hived="")), submission)[0]["priority"] == 10


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ("gpu: 3", 3),
        ("gpu: 1, cpu: 4", 1),
        ("gpu: 1, cpu: 4.5", 2),
        ("gpu: 1, cpu: 4, memoryMB: 32769", 3),
        ("cpu: 1", 1),
        ("gpu: 0, memoryMB: 16384", 1),
    ],
)
def test_a_task_asks_for_the_skus_that_cover_every_resource_of_the_smallest_sku(resources, count, write, submission):
    assert specs(write(job("1", resources)), submission)[0]["leafCellNumber"] == count


def test_a_named_sku_type_is_the_measure_of_its_role(write, submission):
    hived = "taskRoles: {worker: {skuType: BIG}}"
    spec = specs(write(job("1", "gpu: 1, cpu: 9", hived=hived)), submission)[0]
    assert (spec["leafCellType"], spec["leafCellNumber"]) == ("BIG", 2)


def test_all_roles_form_one_gang_by_default(write, submission):
    text = job().replace("defaults:", "  ps:\n    dockerImage: torch\n    resourcePerInstance: {gpu: 2}\ndefaults:")
    found = specs(write(text), submission)
    group = {
        "name": "me~train/default",
        "members": [{"podNumber": 2, "leafCellNumber": 1}, {"podNumber": 1, "leafCellNumber": 2}],
    }
    assert [spec["affinityGroup"] for spec in found] == [group, group, group]


def test_without_gang_allocation_every_pod_stands_alone(write, submission):
    assert all("affinityGroup" not in spec for spec in specs(write(job("20", gang="false")), submission))


def test_named_affinity_groups_hold_the_roles_that_name_them_and_no_other(write, submission):
    text = job(hived="taskRoles: {worker: {affinityGroupName: workers}}")
    text = text.replace("defaults:", "  ps:\n    dockerImage: torch\n    resourcePerInstance: {gpu: 2}\ndefaults:")
    found = specs(write(text), submission)
    assert [spec.get("affinityGroup", {}).get("name") for spec in found] == ["me~train/workers"] * 2 + [None]


def test_flags_of_the_file_reach_the_scheduler(write, submission):
    flags = "lazyPreemptionEnable: true, gangReleaseEnable: true, ignoreK8sSuggestedNodes: false"
    spec = specs(write(job(hived=flags)), submission)[0]
    assert (spec["lazyPreemptionEnable"], spec["gangReleaseEnable"], spec["ignoreK8sSuggestedNodes"]) == (
        True,
        True,
        False,
    )


def test_the_command_line_wins_over_the_file(write, submission):
    wishes = replace(submission, virtual_cluster="product", priority=7, scheduler_name="mine")
    pods, _ = plan_file(write(job()), wishes)
    spec = json.loads(pods[0].manifest["metadata"]["annotations"][SCHEDULING_SPEC])
    assert (spec["virtualCluster"], spec["priority"], pods[0].manifest["spec"]["schedulerName"]) == (
        "product",
        7,
        "mine",
    )


def test_a_pod_is_ours_and_learns_its_devices_from_its_annotation(write, submission):
    pods, _ = plan_file(write(job("1", "gpu: 1, cpu: 0.5, memoryMB: 16000")), submission)
    container = pods[0].manifest["spec"]["containers"][0]
    assert container["resources"]["limits"] == {
        "hivedscheduler.microsoft.com/pod-scheduling-enable": 1,
        "cpu": "0.5",
        "memory": "16000Mi",
    }
    fields = {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for one in container["env"]}
    path = "metadata.annotations['hivedscheduler.microsoft.com/pod-leaf-cell-isolation']"
    assert (fields["NVIDIA_VISIBLE_DEVICES"], fields["HIVED_VISIBLE_DEVICES"]) == (path, path)


def test_parameters_are_filled_into_commands(write, submission):
    text = job("1").replace("[run]", '["run --lr <% $parameters.lr %>"]') + "parameters: {lr: 0.010}\n"
    pods, _ = plan_file(write(text), submission)
    assert pods[0].manifest["spec"]["containers"][0]["command"][-1] == "run --lr 0.010"


def test_a_deployment_wraps_the_commands_of_its_roles(write, submission):
    text = job("1").replace("virtualCluster: research", "virtualCluster: research, deployment: blue")
    text += "deployments: [{name: blue, taskRoles: {worker: {preCommands: [before], postCommands: [after]}}}]\n"
    pods, _ = plan_file(write(text), submission)
    assert pods[0].manifest["spec"]["containers"][0]["command"][-1] == "before\nrun\nafter"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (job("7"), ":7: taskRoles.worker: gang 'default' requests 7 SKUs, exceeds maximum 4 SKUs in VC research"),
        (
            job("13", hived="jobPriorityClass: oppo"),
            ":7: taskRoles.worker: gang 'default' requests 13 SKUs, exceeds maximum 12 SKUs in the cluster",
        ),
        (
            job("1", "gpu: 5", gang="false"),
            ":7: taskRoles.worker: each task requests 5 SKUs, exceeds maximum 4 SKUs in VC research",
        ),
        (
            job("3", hived="taskRoles: {worker: {skuType: SMALL}}"),
            ":7: taskRoles.worker: gang 'default' requests 3 SKUs, exceeds maximum 2 SKUs of type SMALL in VC research",
        ),
        (
            job("5", hived="taskRoles: {worker: {pinnedCellId: PIN}}"),
            ":7: taskRoles.worker: gang 'default' requests 5 SKUs, exceeds maximum 4 SKUs in pinned cell PIN",
        ),
    ],
)
def test_a_gang_that_can_never_fit_is_refused(text, message, write, submission):
    assert refusal(write(text), submission) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (job(instances="two"), ":8: taskRoles.worker.instances: found 'two', expected a whole number from 1 to 150000"),
        (job(instances="0"), ":8: taskRoles.worker.instances: found '0', expected a whole number from 1 to 150000"),
        (
            job(vc="reserch"),
            ":12: defaults.virtualCluster: virtual cluster reserch does not exist; the configuration has batch, "
            "product, research",
        ),
        (
            job(vc="").replace("virtualCluster:", ""),
            ":12: defaults.virtualCluster: virtual cluster default does not exist; the configuration has batch, "
            "product, research",
        ),
        (
            job(hived="jobPriorityClass: high"),
            ":15: extras.hivedScheduler.jobPriorityClass: found 'high', expected crit, prod, test, oppo",
        ),
        (
            job(hived="taskRoles: {worker: {skuType: BIG, pinnedCellId: PIN}}"),
            ":15: extras.hivedScheduler.taskRoles.worker.pinnedCellId: skuType and pinnedCellId exclude each other",
        ),
        (
            job(hived="taskRoles: {wroker: {skuType: BIG}}"),
            ":15: extras.hivedScheduler.taskRoles.wroker: no such task role in taskRoles",
        ),
        (
            job(vc="product", hived="taskRoles: {worker: {skuType: SMALL}}"),
            ":15: extras.hivedScheduler.taskRoles.worker.skuType: VC product has no SKU type 'SMALL' (known: BIG)",
        ),
        (
            job(vc="product", hived="taskRoles: {worker: {pinnedCellId: PIN}}"),
            ":15: extras.hivedScheduler.taskRoles.worker.pinnedCellId: VC product has no pinned cell 'PIN' "
            "(known: none)",
        ),
        (
            job(hived="jobPriorityClass: oppo, taskRoles: {worker: {pinnedCellId: PIN}}"),
            ":15: extras.hivedScheduler.taskRoles.worker.pinnedCellId: an opportunistic job cannot use a pinned cell",
        ),
        (job(vc="batch"), ":10: taskRoles.worker.resourcePerInstance: asks for 1 GPU, but the SKU has none"),
        (
            job().replace("dockerImage: torch", "dockerImage: tench"),
            ":9: taskRoles.worker.dockerImage: no prerequisite of type dockerimage is named 'tench' (known: torch)",
        ),
        (job().replace("protocolVersion: 2", "protocolVersion: 1"), ":1: protocolVersion: found '1', expected 2"),
        (
            job(instances="1" * 5000),
            f":8: taskRoles.worker.instances: found '{'1' * 55}...', expected a whole number from 1 to 150000",
        ),
        (
            job("1", "cpu: 1e300"),
            ":10: taskRoles.worker.resourcePerInstance.cpu: found '1e300', expected a number from 0 to 2147483647",
        ),
        (
            job("!!int foo"),
            ":8: taskRoles.worker.instances: found a value tagged 'tag:yaml.org,2002:int', expected a "
            "whole number from 1 to 150000",
        ),
        (
            job().replace("[run]", "[run, [x]]"),
            ":11: taskRoles.worker.commands: found a list, expected a list of texts",
        ),
        (job() + "<<: 5\n", ":16: ['<<']: found 5, expected a mapping to merge"),
        (job() + "name: again\n", ":16: name: found 'name' given twice (first on line 2), expected each key once"),
        (job() + "x: [", ":17: found text that is not YAML (did not find expected node content), expected YAML"),
        ("- 1\n", ":1: found a list, expected a mapping of names to values"),
        ("", ": is empty; expected a job or a pod manifest"),
    ],
)
def test_a_bad_job_is_answered_with_file_line_and_place(text, message, write, submission):
    assert refusal(write(text), submission) == message


def test_one_gang_cannot_mix_sku_types(write, submission):
    text = job("1", hived="taskRoles: {worker: {skuType: BIG}, ps: {skuType: SMALL}}")
    text = text.replace("defaults:", "  ps:\n    dockerImage: torch\n    resourcePerInstance: {gpu: 1}\ndefaults:")
    assert "affinity group 'default' mixes SKU types or pinned cells: BIG, SMALL" in refusal(write(text), submission)


def test_unknown_keys_are_warnings_with_a_guess(write, submission):
    file = write(job().replace("dockerImage: torch", "dockerImage: torch\n    comands: [x]\n    taskRetryCount: 2"))
    _, warnings = plan_file(file, submission)
    assert warnings == [
        f"{file}:11: taskRoles.worker.taskRetryCount: not honoured in a gang: jobRetryCount starts all of it again, "
        "and without gangAllocation this one counts",
        f"{file}:10: taskRoles.worker.comands: unknown key, ignored",
    ]


def test_a_misspelt_key_that_is_missing_elsewhere_gets_a_suggestion(write, submission):
    file = write(job().replace("    instances: 2", "    instance: 2"))
    assert plan_file(file, submission)[1] == [
        f"{file}:8: taskRoles.worker.instance: unknown key, ignored; did you mean instances?"
    ]


def test_a_job_needs_the_configuration(write, submission):
    assert "needs the cluster's configuration" in refusal(write(job()), replace(submission, cluster=None))


def test_a_file_that_is_not_there_is_named(submission):
    with pytest.raises(UserError, match=r"^none\.yaml: found no readable file \(No such file or directory\)"):
        plan_file("none.yaml", submission)


FREE, FAILS = "PodEvicted -> RestartJob", "PodFailed of worker -> FailJob"


@pytest.mark.parametrize(
    ("role", "root", "gang", "policies", "retries"),
    [
        ("", "", "true", f"{FREE}; {FAILS}", 0),
        ("", "", "false", FAILS, 0),
        (
            "completion: {minSucceededInstances: 1}",
            "",
            "true",
            f"{FREE}; {FAILS}; PodSucceeded of worker -> CompleteJob",
            0,
        ),
        ("completion: {minFailedInstances: 2}", "", "true", f"{FREE}; 2 x {FAILS}", 0),
        ("completion: {minFailedInstances: null, minSucceededInstances: 0}", "", "true", f"{FREE}; {FAILS}", 0),
        ("completion: {minFailedInstances: -1, minSucceededInstances: -1}", "", "true", FREE, 0),
        ("", "jobRetryCount: 3", "true", f"{FREE}; PodFailed of worker -> RestartJob", 3),
        ("", "jobRetryCount: -1", "true", f"{FREE}; PodFailed of worker -> RestartJob", None),
        ("", "jobRetryCount: -2", "true", f"{FREE}; PodFailed of worker -> RestartJob", None),
        ("taskRetryCount: 2", "", "false", f"PodFailed of worker -> RestartPod (2 times); {FAILS}", 0),
        ("taskRetryCount: -1", "", "false", f"PodFailed of worker -> RestartPod; {FAILS}", 0),
        ("taskRetryCount: 2", "", "true", f"{FREE}; {FAILS}", 0),
    ],
)
def test_ends_and_retries_are_openpais(role, root, gang, policies, retries, write, submission):
    text = (
        job(gang=gang)
        .replace("dockerImage: torch", f"dockerImage: torch\n    {role}")
        .replace("type: job", f"type: job\n{root}")
    )
    jobs, warnings = plan_jobs(write(text), submission)
    rules = jobs[0].rules
    assert (summary(rules.policies), rules.max_retries, rules.ends_well) == (policies, retries, True)
    is_told = "-2" in root or ("taskRetryCount" in role and gang == "true")
    assert len(warnings) == is_told, warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "completion: {minFailedInstances: two}",
            "minFailedInstances: found 'two', expected a whole number from -1 to",
        ),
        (
            "completion: {minSucceededInstances: -2}",
            "minSucceededInstances: found '-2', expected a whole number from -1 to",
        ),
        ("taskRetryCount: -3", "taskRetryCount: found '-3', expected a whole number from -1 to"),
    ],
)
def test_a_wrong_number_of_ends_or_retries_is_refused_with_its_place(text, message, write, submission):
    file = write(job().replace("dockerImage: torch", f"dockerImage: torch\n    {text}"))
    assert message in refusal(file, submission)


def test_a_record_makes_the_same_pods_again_without_a_configuration(write, submission):
    """Names that YAML takes for truth values and numbers stay as they are, and passwords are not kept."""
    hived = "jobPriorityClass: prod, taskRoles: {010: {skuType: BIG, withinOne: BIG-NODE}}"
    text = job(resources="gpu: 1, cpu: 9", hived=hived).replace("worker", "010").replace("name: train", 'name: "no"')
    text += "secrets: {password: hunter2}\ndeployments: []\n"
    text = text.replace("uri: example/torch", "uri: example/torch, auth: {password: hunter2}")
    [planned], _ = plan_jobs(write(text), replace(submission, user="010"))
    record = record_of(planned, replace(submission, user="010"), Phase.RUNNING)
    again = record.plan()
    assert [pod.manifest for pod in again.pods] == [pod.manifest for pod in planned.pods]
    assert (again.rules, again.full_name, again.name) == (planned.rules, "010~no", "no")
    assert "hunter2" not in record.document
    apart = planned.apart()
    names = [pod.name for pod in record_of(apart, replace(submission, user="010"), Phase.RUNNING).plan().pods]
    assert names == [pod.name for pod in apart.pods] == ["010-no-010-0", "010-no-010-1"]


@pytest.mark.skipif(not LAB.is_dir(), reason="needs the shared folder beside the checkout")
@pytest.mark.parametrize("number", range(8))
def test_the_lab_files_of_openpai_are_understood_without_a_warning(number, submission):
    gpu_nodes = replace(submission.cluster, physical_cells=submission.cluster.physical_cells[:-1])
    wishes = replace(submission, virtual_cluster="research", cluster=gpu_nodes)
    pods, warnings = plan_file(str(LAB / f"job-config-{number}.yaml"), wishes)
    assert (len(pods), warnings) == (2 if number in (6, 7) else 1, [])


def test_gpus_that_may_be_looked_for_on_nodes_without_any_are_a_warning(write, submission):
    """Opportunistic jobs may run on the whole cluster, CPU nodes included."""
    file = write(job(hived="jobPriorityClass: oppo"))
    assert plan_file(file, submission)[1] == [
        f"{file}:10: taskRoles.worker.resourcePerInstance: asks for GPUs, but may run on CPU without any; "
        "give a skuType in extras.hivedScheduler.taskRoles"
    ]
    named = write(job(hived="jobPriorityClass: oppo, taskRoles: {worker: {skuType: BIG}}"))
    assert plan_file(named, submission)[1] == []


PS = "  ps:\n    dockerImage: torch\n    resourcePerInstance: {gpu: 2}\ndefaults:"


def warnings_of(file: str, submission: Submission) -> list[str]:
    return [warning.removeprefix(f"{file}:").partition(": ")[2] for warning in plan_file(file, submission)[1]]


@pytest.mark.parametrize(
    "wish",
    [
        "skuNum: 2, skuType: BIG",
        "resourcePerInstance: {skuNum: 2, skuType: BIG}",
        "skuType: BIG, resourcePerInstance: {skuNum: 2}",
    ],
    ids=["portal", "newer", "mixed"],
)
def test_a_number_of_skus_is_taken_as_written(wish, write, submission):
    file = write(job("1", "gpu: 1, cpu: 1, memoryMB: 1024", hived=f"taskRoles: {{worker: {{{wish}}}}}"))
    assert [(spec["leafCellType"], spec["leafCellNumber"]) for spec in specs(file, submission)] == [("BIG", 2)]
    assert warnings_of(file, submission) == []


def test_no_number_of_skus_is_what_the_resources_need(write, submission):
    wish = "taskRoles: {worker: {skuNum: null, skuType: null, withinOne: null, minGangInstance: null}}"
    file = write(job("1", "gpu: 3", hived=wish))
    assert [spec["leafCellNumber"] for spec in specs(file, submission)] == [3]
    assert warnings_of(file, submission) == []


def test_a_number_of_skus_counts_against_the_quota(write, submission):
    file = write(job("2", hived="taskRoles: {worker: {skuNum: 9}}"))
    assert "requests 18 SKUs, exceeds maximum" in refusal(file, submission)


def test_fewer_skus_than_the_resources_need_are_warned_of(write, submission):
    file = write(job("1", "gpu: 3", hived="taskRoles: {worker: {skuNum: 1}}"))
    assert [spec["leafCellNumber"] for spec in specs(file, submission)] == [1]
    [warning] = warnings_of(file, submission)
    assert warning.endswith("takes 3 SKUs, but skuNum in extras.hivedScheduler.taskRoles says 1")


def test_a_task_role_that_is_a_gang_can_be_kept_within_one_cell(write, submission):
    file = write(job("2", hived="taskRoles: {worker: {withinOne: BIG-NODE}}"))
    assert [spec["withinCell"] for spec in specs(file, submission)] == ["BIG-NODE"] * 2
    assert warnings_of(file, submission) == []


def test_a_group_of_task_roles_is_a_gang_within_one_cell_and_the_others_another(write, submission):
    groups = "taskRoleGroups: [{taskRoles: [worker, ps], withinOne: BIG-POOL, gang: true}]"
    text = job("1", hived=groups).replace("defaults:", PS).replace("defaults:", PS.replace("ps:", "log:", 1), 1)
    found = specs(write(text), submission)
    names = [(spec["affinityGroup"]["name"], spec.get("withinCell")) for spec in found]
    assert names == [("me~train/taskRoleGroups/worker_ps", "BIG-POOL")] * 2 + [("me~train/default", None)]


@pytest.mark.parametrize(
    ("gang", "wish", "reason"),
    [
        (
            "true",
            "taskRoles: {worker: {withinOne: BIG-NODE}}",
            "cells are chosen for a gang as a whole, and ps belongs to",
        ),
        ("false", "taskRoles: {worker: {withinOne: BIG-NODE}}", "without a gang each instance is placed by itself"),
        ("true", "taskRoles: {worker: {minGangInstance: 1}}", "all 2 instances start together"),
    ],
)
def test_a_wish_that_cannot_be_kept_is_warned_of(gang, wish, reason, write, submission):
    file = write(job(gang=gang, hived=wish).replace("defaults:", PS))
    assert not any("withinCell" in spec for spec in specs(file, submission))
    [warning] = warnings_of(file, submission)
    assert f"not honoured: {reason}" in warning


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            "taskRoles: {worker: {withinOne: RACK}}",
            "no cell type 'RACK' (known: BIG-NODE, BIG-POOL, CPU-NODE, SMALL-NODE)",
        ),
        ("taskRoleGroups: [{taskRoles: [worker]}]", "found worker, expected at least two task roles"),
        ("taskRoleGroups: [{taskRoles: [worker, no]}]", "no such task role in taskRoles: no"),
        (
            "taskRoleGroups: [{taskRoles: [worker, ps]}, {taskRoles: [ps, worker]}]",
            "ps is in an affinity group already",
        ),
        (
            "taskRoles: {worker: {skuNum: 1, resourcePerInstance: {skuNum: 1}}}",
            "resourcePerInstance has a skuNum too; keep one of them",
        ),
        ("taskRoles: {worker: {skuNum: many}}", "found 'many', expected a whole number from 0 to"),
    ],
)
def test_a_mistake_in_these_keys_has_its_place(wish, message, write, submission):
    assert message in refusal(write(job(hived=wish).replace("defaults:", PS)), submission)


@pytest.mark.parametrize(
    ("resources", "hived", "sees"),
    [
        ("gpu: 1", "taskRoles: {worker: {skuType: BIG}}", True),
        ("gpu: 0, cpu: 1", "", True),
        ("gpu: 0, cpu: 1", "jobPriorityClass: oppo", False),
        ("gpu: 0, cpu: 1", "jobPriorityClass: oppo, taskRoles: {worker: {skuType: CPU}}", False),
    ],
)
def test_a_task_whose_cells_may_have_no_gpus_sees_none_unless_it_asks_for_some(
    resources, hived, sees, write, submission
):
    """The numbers of its CPU cells are GPUs of others on a node that has both."""
    pods, _ = plan_file(write(job("1", resources, hived=hived)), submission)
    variables = pods[0].manifest["spec"]["containers"][0]["env"][:2]
    assert [("valueFrom" in each, each.get("value")) for each in variables] == [(sees, None if sees else "void")] * 2
