"""Long random runs of core and oracle in lock step: `python -m tests.property.soak --ops 200000`.

Each run is one cluster with a few hundred operations, fully determined by its seed; every other one goes beyond what
the reference has. A difference stops the soak; the run is written to --dump as a scenario with its configurations.
After each come one of two cores under better rules, one of gangs, in which all of `gang_rules` have to hold, one of
the machine alone, and one of tenants who go past their quotas.
"""

from collections import Counter
from pathlib import Path

from tests.driver import history_parser, kept, seeds
from tests.property.better_run import BetterRun
from tests.property.choices import Choices, Seeded
from tests.property.clusters import make_cluster, make_hardware, pack_some
from tests.property.gang_run import FICKLE, OPERATIONS
from tests.property.gang_run import make_run as make_gang_run
from tests.property.lockstep import LockStep
from tests.property.machine_run import MachineRun
from tests.property.operations import Operations
from tests.property.quota_cheats import Cheats

OPS_PER_RUN = 250
STEPS_PER_GANG_RUN = 120
STEPS_PER_MACHINE_RUN = 120
CONFIG_COUNT = 3


def make_run(seed: int, leaves: int = 0, *, beyond: bool = False) -> tuple[LockStep, Operations]:
    """A cluster, two reconfigurations of it, and a source of operations; `beyond` what the reference has."""
    choices = Choices(Seeded(seed))
    hardware = make_hardware(choices, leaves)
    configs = {f"config{i}.yaml": make_cluster(choices, hardware) for i in range(CONFIG_COUNT)}
    if beyond:
        configs = {name: pack_some(choices, spec) for name, spec in configs.items()}
    lockstep = LockStep(configs)
    return lockstep, Operations(choices, configs, beyond=beyond, reservations=lockstep.reservations)


def run(seed: int, op_count: int, dump: Path, leaves: int = 0, *, beyond: bool = False) -> int:
    """Returns how many operations both agreed on. Raises Difference, after writing the run to `dump`."""
    lockstep, operations = make_run(seed, leaves, beyond=beyond)
    with kept(dump / f"seed-{seed}", lockstep.dump):
        for op in operations.start():
            lockstep.apply(op)
        while len(lockstep.operations) < op_count:
            op = operations.next()
            operations.learn(op, lockstep.apply(op))
    return len(lockstep.operations)


def run_better(seed: int, op_count: int, dump: Path) -> None:
    """Two cores under better rules. Raises Difference, after writing the run to `dump`."""
    better = BetterRun(seed)
    with kept(dump / f"better-{seed}", better.lockstep.dump):
        better.live(op_count)


def run_gangs(seed: int, step_count: int, dump: Path, operations: dict[str, int] = OPERATIONS) -> str:
    """Pods of all dialects; returns what happened. If a rule breaks, that is in `dump`, and Broken raised."""
    gang_run = make_gang_run(Choices(Seeded(seed)))
    with kept(dump / f"gangs-{seed}.txt", lambda file: file.write_text(f"{gang_run}\n")):
        for _ in range(step_count):
            gang_run.step(operations)
        gang_run.settle()
    return str(gang_run)


def run_machine(seed: int, step_count: int, dump: Path) -> str:
    """Stimuli for the machine alone; returns what happened. If something breaks, that is in `dump`."""
    machine_run = MachineRun(Choices(Seeded(seed)))
    with kept(dump / f"machine-{seed}.txt", lambda file: file.write_text(f"{machine_run}\n")):
        for _ in range(step_count):
            machine_run.step()
        machine_run.finish()
    return str(machine_run)


def run_cheats(seed: int, dump: Path) -> None:
    """Tenants and quotas. If one is passed, what happened is in `dump`."""
    history = Cheats(seed)
    with kept(dump / f"quotas-{seed}.txt", lambda file: file.write_text("\n".join(history.log))):
        history.run()


def main() -> None:
    parser = history_parser("tests.property.soak", __doc__, "ops", 200_000)
    parser.add_argument("--leaves", type=int, default=0, help="leaf cells of each cluster; small and random if 0")
    parser.add_argument("--dump", type=Path, default=Path("out/soak"))
    options = parser.parse_args()
    done = Counter[int]()
    for seed in seeds(options, done.total):
        count, dump = min(OPS_PER_RUN, options.enough - done.total()), options.dump
        run(seed, count, dump, options.leaves, beyond=seed % 2 == 1)
        run_better(seed, count, dump)
        run_gangs(seed, STEPS_PER_GANG_RUN, dump, FICKLE if seed % 2 else OPERATIONS)
        run_machine(seed, STEPS_PER_MACHINE_RUN, dump)
        run_cheats(seed, dump)
        done[seed] = count


if __name__ == "__main__":
    main()
