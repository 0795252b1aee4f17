"""SKU types: what one leaf cell stands for when jobs are submitted (SEMANTICS 2.1)."""

import pytest
from sound_file import changed, cluster_of, mistakes_of

from hived.specs import SkuTypeSpec
from hived_config.loader import load_text


def with_skus(skus: str) -> str:
    """The sound file with these SKU types."""
    return changed("  physicalCells:", f"  skuTypes: {skus}\n  physicalCells:")


def test_sku_types_are_carried_to_job_submission() -> None:
    skus = cluster_of(with_skus("{GPU: {gpu: 1, cpu: 2, memory: 4096Mi}}")).sku_types
    assert skus == {"GPU": SkuTypeSpec(1, 2.0, 4096.0)}


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
        ("{memory: 4Gb}", ".memory: found 4Gb, expected an amount of memory, such as 4096Mi or 32Gi"),
        ("{memory: [1]}", ".memory: found a list, expected an amount of memory, such as 4096Mi or 32Gi"),
        ("{gpus: 1}", ".gpus: found unknown key 'gpus', expected one of gpu, cpu, memory (did you mean gpu?)"),
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
