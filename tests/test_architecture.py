"""Allowed imports, read from the sources with `ast`: nothing here runs the code it judges.

The tables list them; a new module has to take its place in them.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.places import ROOT

PACKAGES = {
    "hived": ROOT / "hived",
    "hived_config": ROOT / "config" / "hived_config",
    "hived_deploy": ROOT / "extender" / "hived_deploy",
    "hived_extender": ROOT / "extender" / "hived_extender",
    "hived_simulator": ROOT / "extender" / "hived_simulator",
    "hived_jobs": ROOT / "extender" / "hived_jobs",
    "hived_lab": ROOT / "extender" / "hived_lab",
    "hived_cli": ROOT / "extender" / "hived_cli",
}

# All rooms, lowest first. A module may import from its own room and from lower ones. Rooms of one line do not know each
# other. A room is a package or a folder; what lies in no deeper room belongs to the package.
ROOMS: tuple[tuple[str, ...], ...] = (
    ("hived.values", "hived.kernels"),
    ("hived.cells", "hived.kernels.compiling"),
    ("hived.life",),
    ("hived.hived_rules",),
    ("hived.complete",),
    ("hived.better_rules",),
    ("hived",),
    ("hived.why",),
    ("hived_config",),
    ("hived_config.text",),
    ("hived_config.generating",),
    ("hived_extender.kube", "hived_deploy"),
    ("hived_extender.jobs",),
    ("hived_extender.api",),
    ("hived_extender.kube_rules",),
    ("hived_extender.machine",),
    ("hived_extender.reconfiguration",),
    ("hived_extender.queues",),
    ("hived_extender.insight",),
    ("hived_extender.http",),
    ("hived_extender",),
    ("hived_simulator.traces",),
    ("hived_simulator",),
    ("hived_simulator.report",),
    ("hived_jobs",),
    ("hived_lab.embedded",),
    ("hived_lab",),
    ("hived_cli.helpers",),
    ("hived_cli",),
)
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}

# What gives the core a clock, a file, a log, a thread or the network.
FORBIDDEN_IN_CORE = {
    "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "selectors", "shutil", "signal", "socket",
    "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
CORE_EXCEPTIONS = {
    "kernels.linked": {"os", "pathlib"},  # looks for the linked library
    "kernels.compiling.kernel_cache": {"os", "pathlib", "shutil", "tempfile"},  # keeps compiled kernels on disk
    "kernels.compiling.build": {
        "os",
        "pathlib",
        "subprocess",
        "tempfile",
        "time",
    },  # a program, run when hived is built
}

# Nobody but these needs numba: a service with linked kernels never imports it.
COMPILING = ("block_types", "compiled", "dispatchers", "kernel_cache", "object_code", "shared")

# Third-party packages that only these modules may import.
ONLY_IN = {
    "numba": {f"hived.kernels.compiling.{name}" for name in COMPILING},
    "llvmlite": {
        f"hived.kernels.compiling.{name}" for name in ("block_types", "compiled", "kernel_cache", "object_code")
    },
    "cryptography": {"hived_deploy.certificates"},
    "kubernetes": {f"hived_extender.kube.{name}" for name in ("endpoint", "kubeconfig", "service_account")},
}

# What we use of libraries beside their public interface, all of it. Another version may lack it, so pyproject.toml has
# an upper bound for each. Attributes that no import shows, all in hived.kernels.compiling: `_cache`, `overloads` and
# the library in them (dispatchers, compiled, shared), `_cache_file`, `_cache_path` and `_impl` of a cache
# (kernel_cache). `kernels.c` knows the calling convention of compiled functions, and how exceptions lie in it.
INTERNALS = {
    "hived.kernels.compiling.block_types": {"numba.core.typing.templates", "numba.np.arrayobj"},
    "hived.kernels.compiling.compiled": {"numba.core.compiler_lock"},
    "hived.kernels.compiling.kernel_cache": {"numba.core.caching", "numba.core.serialize"},
    "hived_extender.http.guard": {"uvicorn.protocols.http.httptools_impl", "uvicorn.server"},
    "hived_extender.kube.endpoint": {"kubernetes.client.rest"},
    "hived_extender.kube.kubeconfig": {"kubernetes.config.exec_provider", "kubernetes.config.kube_config"},
    "hived_extender.kube.service_account": {"kubernetes.config.incluster_config"},
}
INTERNAL_PARTS = ("numba.core", "numba.np", "numba.misc", "uvicorn.", "kubernetes.config.", "kubernetes.client.")
BOUNDED = {"numba", "llvmlite", "uvicorn", "kubernetes"}

# Import names whose distribution has another name.
DISTRIBUTION_OF = {"yaml": "PyYAML", "prometheus_client": "prometheus-client"}


def modules() -> dict[str, Path]:
    """Every module of all packages by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()
CORE_MODULES = sorted(name for name in MODULES if name.startswith("hived."))


@cache
def tree_of(module: str) -> ast.Module:
    """A module as it is written. Nothing is parsed before a test asks: every worker collects all tests."""
    return ast.parse(MODULES[module].read_text())


@cache
def definitions_and_imports(module: str) -> list[ast.stmt]:
    """The statements of a module that define functions or import, at any depth."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
    return [node for node in ast.walk(tree_of(module)) if isinstance(node, kinds)]


@cache
def imports(module: str) -> tuple[tuple[str, int], ...]:
    """(dotted name, line) of everything a module imports, also inside functions."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, int]]:
    for node in definitions_and_imports(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in MODULES else str(node.module)), node.lineno


def room_of(module: str) -> str:
    """The deepest room that a module lies in."""
    parts = module.split(".")
    rooms = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(room for room in rooms if room in FLOOR)


def modules_in(room: str) -> list[str]:
    """The modules of a room, which has at least one."""
    found = [module for module in MODULES if room_of(module) == room]
    assert found
    return found


@pytest.mark.parametrize("room", FLOOR)
def test_modules_import_only_from_their_room_and_from_lower_ones(room: str) -> None:
    wrong = [
        f"{module}:{line} imports {name}"
        for module in modules_in(room)
        for name, line in imports(module)
        if name.split(".")[0] in PACKAGES and room_of(name) != room and FLOOR[room_of(name)] >= FLOOR[room]
    ]
    assert not wrong


@pytest.mark.parametrize("room", FLOOR)
def test_modules_of_a_room_do_not_import_in_circles(room: str) -> None:
    own = set(modules_in(room))
    TopologicalSorter({each: {name for name, _ in imports(each)} & own - {each} for each in own}).prepare()


def decorated(name: str, modules: Iterable[str] = MODULES) -> dict[str, ast.FunctionDef]:
    """Every function with this decorator."""
    return {
        node.name: node
        for module in modules
        for node in tree_of(module).body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == name for each in node.decorator_list)
    }


def test_no_kernel_calls_an_entry_kernel() -> None:
    """Else a process that loads the caller from disk would compile the other one anew at its first call from Python."""
    entries = decorated("entry_kernel")
    wrong = [
        f"{name} calls {node.id}"
        for name, kernel in (entries | decorated("kernel")).items()
        for node in ast.walk(kernel)
        if isinstance(node, ast.Name) and node.id in entries
    ]
    assert entries
    assert not wrong


def test_a_kernel_outside_the_core_calls_only_kernels_of_its_own_file() -> None:
    """numba notices edits in that file only, and the digest in the name of the kernels' folder covers only the core."""
    kernels = decorated("entry_kernel") | decorated("kernel")
    outside = 0
    wrong = []
    for module in MODULES.keys() - set(CORE_MODULES):
        own = decorated("entry_kernel", [module]) | decorated("kernel", [module])
        outside += len(own)
        wrong += [
            f"{name} calls {node.id}"
            for name, kernel in own.items()
            for node in ast.walk(kernel)
            if isinstance(node, ast.Name) and node.id in kernels.keys() - own.keys()
        ]
    assert outside
    assert not wrong


def test_no_process_imports_modules_from_its_working_directory() -> None:
    """`python -m` would look there first: whoever may write there, as in /tmp, would have their code run."""
    sources = [*MODULES.values(), *sorted((ROOT / ".ci").rglob("*.py"))]
    commands = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", words)
        for path in sources
        if '"-m"' in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List)
        and "-m" in (words := [each.value for each in node.elts if isinstance(each, ast.Constant)])
    ]
    assert commands
    assert not [place for place, words in commands if not {"-P", "-I"} & set(words[: words.index("-m")])]


@pytest.mark.parametrize("room", FLOOR)
def test_a_library_is_imported_only_where_it_is_wrapped(room: str) -> None:
    wrong = [
        f"{module}:{line} imports {name}"
        for module in modules_in(room)
        for name, line in imports(module)
        if (places := ONLY_IN.get(name.split(".")[0])) is not None
        and not places & {module, module.split(".", maxsplit=1)[0]}
    ]
    assert not wrong


def test_every_library_that_is_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[<>=!~ ]", each)[0].lower() for each in project["dependencies"]}
    imported = {name.split(".")[0] for module in MODULES for name, _ in imports(module)}
    libraries = imported - sys.stdlib_module_names - PACKAGES.keys()
    assert {DISTRIBUTION_OF.get(name, name).lower() for name in libraries} <= declared


def test_internals_of_libraries_are_used_only_where_the_table_says() -> None:
    used = {module: {name for name, _ in imports(module) if name.startswith(INTERNAL_PARTS)} for module in MODULES}
    assert {module: names for module, names in used.items() if names} == INTERNALS


def test_libraries_whose_internals_are_used_have_an_upper_bound() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounded = {re.split(r"[\[<>=!~ ]", each)[0] for each in dependencies if "<" in each}
    assert {name.split(".")[0] for names in INTERNALS.values() for name in names} <= BOUNDED
    assert bounded >= BOUNDED


@cache
def classes() -> dict[str, tuple[set[str], set[str]]]:
    """(bases, public methods) of every class of ours by its name."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                bases = {ast.unparse(each).split("[")[0].split(".")[-1] for each in node.bases}
                found[node.name] = (bases, methods)
    return found


def is_inherited(name: str, bases: set[str]) -> bool:
    """Whether one of these classes, or of ours above them, has a method of that name to document it."""
    ours = [classes()[base] for base in bases if base in classes()]
    return any(name in methods or is_inherited(name, above) for above, methods in ours)


def undocumented(module: str) -> Iterator[str]:
    """Public functions, classes and methods without a docstring, and the module itself if it has none.

    A method that overrides one of ours is documented there.
    """
    tree = tree_of(module)
    if ast.get_docstring(tree) is None:
        yield module
    for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef) and is_public(node))]:
        bases = classes()[owner.name][0] if isinstance(owner, ast.ClassDef) else set()
        for node in filter(is_public, owner.body):
            if ast.get_docstring(node) is None and not is_inherited(node.name, bases):
                yield f"{module}:{node.lineno} {node.name}"


def is_public(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Whether a statement defines something that others may use; the variants of an overload are its signature."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
        return False
    return not any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


@pytest.mark.parametrize("room", FLOOR)
def test_everything_public_is_documented(room: str) -> None:
    assert not [each for module in modules_in(room) for each in undocumented(module)]


SOURCE_FOLDERS = sorted({path.parent.relative_to(ROOT).as_posix() for path in MODULES.values()})
TESTS_OF = {
    "hived": "core", "config/hived_config": "config", "extender/hived_deploy": "deploy",
    "extender/hived_extender": "extender", "extender/hived_simulator": "simulator",
    "extender/hived_jobs": "jobs", "extender/hived_lab": "lab", "extender/hived_cli": "cli",
}  # fmt: skip


@pytest.mark.parametrize("folder", ["config", "extender", "tests", "examples", *SOURCE_FOLDERS])
def test_every_folder_says_what_may_live_there(folder: str) -> None:
    assert (ROOT / folder / "README.md").read_text().strip()


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_tests_lie_in_a_folder_like_that_of_what_they_test(folder: str) -> None:
    package = next(each for each in TESTS_OF if folder == each or folder.startswith(each + "/"))
    tests = ROOT / "tests" / TESTS_OF[package] / folder.removeprefix(package).strip("/")
    assert list(tests.glob("test_*.py"))
