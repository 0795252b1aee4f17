"""Every piece of YAML on a page would be accepted where it belongs, and every piece of JSON is JSON."""

import msgspec
import pytest

from docs.site.pages import Block, pages
from hived.values.errors import HivedError
from tests.docs.kinds import WrongExampleError, check

BLOCKS = [block for page in pages() for block in page.blocks if block.language == "yaml"]
JSON = [block for page in pages() for block in page.blocks if block.language == "json"]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_example_is_accepted(block: Block) -> None:
    is_comment = all(line.startswith("#") for line in block.text.splitlines())
    assert check(block.text) or is_comment


@pytest.mark.parametrize("block", JSON, ids=str)
def test_every_answer_that_is_shown_is_json(block: Block) -> None:
    assert msgspec.json.decode(block.text)


@pytest.mark.parametrize(
    "text",
    [
        "virtualClusters: {research: {virtualCell: []}}",
        "access: nobody",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: 1}",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, resource: {}}]}",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {minAvailable: no, tasks: []}",
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\nspec: {weigth: 1}",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextender: []",
        "components: [PATH/config/deploy/components/none]",
        "something: else",
    ],
)
def test_a_wrong_example_is_noticed(text: str) -> None:
    with pytest.raises((WrongExampleError, HivedError)):
        check(text)
