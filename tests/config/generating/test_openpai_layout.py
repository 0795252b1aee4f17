"""OpenPAI's layout.yaml -> machines."""

import pytest

from hived_config.document import ConfigError
from hived_config.generating.layout import read_layout

LAYOUT = """\
machine-sku:
  master-machine:
    mem: 60Gi
    cpu: {vcore: 24}
  gpu-machine:
    computing-device:
      type: nvidia.com/gpu
      model: K80
      count: 4
    mem: 220Gi
    cpu:
      vcore: 24
machine-list:
- {hostname: pai-master, hostip: 10.0.0.1, machine-type: master-machine, pai-master: "true"}
- {hostname: worker-10, hostip: 10.0.0.3, machine-type: gpu-machine, pai-worker: "true", rack: r1}
- {hostname: worker-9, hostip: 10.0.0.2, machine-type: gpu-machine, pai-worker: "true"}
- {hostname: worker-cpu, hostip: 10.0.0.4, machine-type: master-machine, pai-worker: "true"}
"""


def test_workers_with_devices_are_machines() -> None:
    found = read_layout(LAYOUT, "f", levels=["rack"])
    assert [(each.name, each.product, each.device_count, each.groups) for each in found.machines] == [
        ("worker-9", "K80", 4, ("",)),
        ("worker-10", "K80", 4, ("r1",)),
    ]
    assert found.notes == ("1 worker left out, without devices: worker-cpu",)


def test_part_of_a_machine_is_kept_for_the_system() -> None:
    machine = read_layout(LAYOUT, "f").machines[0]
    assert (machine.cpu, machine.memory_mib) == (23, 218 * 1024)
    whole = read_layout(LAYOUT, "f", reserved_cpu=0, reserved_memory_mib=0).machines[0]
    assert (whole.cpu, whole.memory_mib) == (24, 220 * 1024)


def test_machines_without_devices_can_become_cells_of_cpus() -> None:
    machine = read_layout(LAYOUT, "f", with_cpus=True).machines[-1]
    assert (machine.name, machine.product, machine.device_count, machine.resource) == ("worker-cpu", "CPU", 23, "")


def test_layouts_of_old_are_read_too() -> None:
    old = LAYOUT.replace("computing-device", "gpu").replace("type: nvidia.com/gpu\n      model: K80", "type: teslak80")
    machine = read_layout(old.replace("220Gi", "224"), "f").machines[0]
    assert (machine.product, machine.resource, machine.memory_mib) == ("teslak80", "nvidia.com/gpu", 222 * 1024)


@pytest.mark.parametrize("memory", ["60GB", "60G"])
def test_memory_may_be_written_as_in_its_examples(memory: str) -> None:
    machine = read_layout(LAYOUT.replace("220Gi", memory), "f", reserved_memory_mib=0).machines[0]
    assert machine.memory_mib == 60e9 / 2**20


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("machine-list:", "machines:", "f:1: found no machine-list, expected a list of machines"),
        ("count: 4", "count: four", "f:9: machine-sku.gpu-machine.computing-device.count: found four"),
        ("count: 4", "number: 4", "f:7: machine-sku.gpu-machine.computing-device: found no count"),
        ("type: nvidia.com/gpu", "type: nvidia", "f:7: machine-sku.gpu-machine.computing-device.type: found 'nvidia'"),
        ("220Gi", "220 gigs", "f:10: machine-sku.gpu-machine.mem: found 220 gigs, expected an amount"),
        ("vcore: 24\nm", "vcore: many\nm", "f:12: machine-sku.gpu-machine.cpu.vcore: found many"),
        ("    computing-device:", "    computing-devices:", "f:6: machine-sku.gpu-machine.computing-devices: found"),
        ("0.3, machine-type: gpu-machine", "0.3, machine-type: gpu-machin",
         "f:15: machine-list[1].machine-type: found 'gpu-machin', expected a machine type of machine-sku"),
        ("hostname: worker-9", "hostname: worker-10", "f:16: machine-list[2]: found hostname 'worker-10' given twice"),
        ("{hostname: worker-9, ", "{", "f:16: machine-list[2]: found no hostname, expected the name of the machine"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(old: str, new: str, mistake: str) -> None:
    assert old in LAYOUT
    with pytest.raises(ConfigError) as caught:
        read_layout(LAYOUT.replace(old, new, 1), "f")
    assert str(caught.value).startswith(mistake)
