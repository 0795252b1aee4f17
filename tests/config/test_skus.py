"""SKU types: what one leaf cell stands for when jobs are submitted (rule 1.4)."""

import pytest

from hived.values.specs import SkuTypeSpec
from hived_config.loader import load_text
from hived_config.skus import SKU_TYPE
from tests.config.sound_file import changed, cluster_of, mistakes_of

A_MEMORY = "an amount of memory, such as 4096Mi or 32Gi, or no such key"
A_RESOURCE = "a device resource of Kubernetes, such as nvidia.com/gpu"
A_LABEL = "the name of a label, such as example.com/gpu-model"
A_VALUE = "the value of a label: at most 63 letters, digits, '-', '_' and '.'"
KEYS = ", ".join(SKU_TYPE.keys)


def with_skus(skus: str) -> str:
    """The sound file with these SKU types."""
    return changed("  physicalCells:", f"  skuTypes: {skus}\n  physicalCells:")


def test_sku_types_are_carried_to_job_submission() -> None:
    skus = cluster_of(with_skus("{GPU: {gpu: 1, cpu: 2, memory: 4096Mi}}")).sku_types
    assert skus == {"GPU": SkuTypeSpec(1, 2.0, 4096.0)}


@pytest.mark.parametrize(
    ("written", "gpu"),
    [("{}", 1), ("{nodeLabels: {a: b}}", 1), ("{cpu: 4}", 0), ("{memory: 1Gi}", 0), ("{cpu: 4, resource: a.b/c}", 1)],
)
def test_a_type_is_one_gpu_unless_it_is_described_without(written: str, gpu: int) -> None:
    assert cluster_of(with_skus(f"{{GPU: {written}}}")).sku_types["GPU"].gpu == gpu


@pytest.mark.parametrize(
    ("written", "resources"),
    [("{}", {"GPU": "nvidia.com/gpu"}), ("{resource: amd.com/gpu}", {"GPU": "amd.com/gpu"}), ("{cpu: 4}", {})],
)
def test_a_type_of_gpus_is_a_device_resource(written: str, resources: dict[str, str]) -> None:
    configuration = load_text(with_skus(f"{{GPU: {written}}}"), "f", environ={})
    assert configuration.rules.resources_in(configuration.cluster) == resources


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        ("{}", {"GPU": "gpu.nvidia.com"}),
        ("{resource: amd.com/gpu}", {}),
        ("{resource: amd.com/gpu, deviceClass: gpu.amd.com}", {"GPU": "gpu.amd.com"}),
        ("{deviceClass: ''}", {}),
        ("{cpu: 4, deviceClass: gpu.nvidia.com}", {}),
    ],
)
def test_a_type_of_gpus_has_a_device_class(written: str, classes: dict[str, str]) -> None:
    configuration = load_text(with_skus(f"{{GPU: {written}}}"), "f", environ={})
    assert configuration.rules.device_classes_in(configuration.cluster) == classes


def test_labels_of_nodes_are_text_as_written() -> None:
    rules = load_text(with_skus("{GPU: {nodeLabels: {example.com/a: 010, b: ''}}}"), "f", environ={}).rules
    assert rules.node_labels == {"GPU": {"example.com/a": "010", "b": ""}}


@pytest.mark.parametrize(
    ("written", "memory_mib"),
    [("4Gi", 4096.0), ("512Ki", 0.5), ("1.5Gi", 1536.0), ("1048576", 1.0), ("1Ti", 2.0**20), ("2G", 2e9 / 2**20)],
)
def test_memory_is_a_kubernetes_quantity(written: str, memory_mib: float) -> None:
    assert cluster_of(with_skus(f"{{GPU: {{memory: {written}}}}}")).sku_types["GPU"].memory_mib == memory_mib


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("{gpu: -1}", ".gpu: found -1, expected a whole number of GPUs, at least 0"),
        ("{gpu: 0.5}", ".gpu: found 0.5, expected a whole number of GPUs"),
        ("{cpu: many}", ".cpu: found many, expected a number of CPUs"),
        ("{cpu: -1}", ".cpu: found -1, expected a number of CPUs"),
        ("{memory: 4Gb}", f".memory: found 4Gb, expected {A_MEMORY}"),
        ("{memory: [1]}", f".memory: found a list, expected {A_MEMORY}"),
        ("{gpus: 1}", f".gpus: found unknown key 'gpus', expected one of {KEYS} (did you mean gpu?)"),
        ("{resource: gpu}", f".resource: found gpu, expected {A_RESOURCE}"),
        ("{resource: }", f".resource: found nothing, expected {A_RESOURCE}"),
        ("{resource: [a/b]}", f".resource: found a list, expected {A_RESOURCE}"),
        ("{deviceClass: A_b}", ".deviceClass: found A_b, expected the name of a DeviceClass, such as gpu.nvidia.com"),
        ("{nodeLabels: a}", ".nodeLabels: found a, expected labels of nodes by name"),
        ("{nodeLabels: {a b: c}}", f".nodeLabels['a b']: found label 'a b', expected {A_LABEL}"),
        ("{nodeLabels: {a: [c]}}", f".nodeLabels.a: found a list, expected {A_VALUE}"),
        ("{nodeLabels: {a: b c}}", f".nodeLabels.a: found b c, expected {A_VALUE}"),
        ("[1]", ": found a list, expected a SKU type (a mapping)"),
    ],
)
def test_a_quantity_that_is_none_is_a_mistake(written: str, mistake: str) -> None:
    listed = mistakes_of(with_skus(f"{{GPU: {written}}}"))
    assert listed == [f"f:6: physicalCluster.skuTypes.GPU{mistake}"]


def test_a_sku_type_of_no_leaf_cell_type_is_only_warned_of() -> None:
    configuration = load_text(with_skus("{GPUS: {gpu: 1}}"), "f", environ={})
    assert [str(warning) for warning in configuration.warnings] == [
        "f:6: warning: physicalCluster.skuTypes.GPUS: found SKU type 'GPUS', "
        "expected a leaf cell type, or nothing can use it (did you mean GPU?)"
    ]


def test_sku_types_are_not_doubted_while_a_cell_type_is_broken() -> None:
    text = changed("  physicalCells:", "    ODD: {childCellType: X}\n  skuTypes: {X: {gpu: 1}}\n  physicalCells:")
    assert [mistake.split(", expected")[0] for mistake in mistakes_of(text)] == [
        "f:6: physicalCluster.cellTypes.ODD: found no childCellNumber"
    ]
