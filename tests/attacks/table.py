"""The table of attacks, in the order in which they run."""

from tests.attacks import fuzzed_annotations, fuzzed_requests
from tests.attacks.attack import Attack

ATTACKS = (
    Attack("requests", "100,000 fuzzed requests to all paths", fuzzed_requests.run),
    Attack("annotations", "100,000 pods with hostile labels, annotations, quantities and rules", fuzzed_annotations.run),
)
