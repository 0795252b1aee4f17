"""Who may import whom, read from the sources with `ast`: nothing here runs the code it judges.

The tables say what is allowed; a new module has to take its place in them.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "hived": ROOT / "hived",
    "hived_config": ROOT / "config" / "hived_config",
    "hived_extender": ROOT / "extender" / "hived_extender",
}

# A package may import from itself and from these.
ALLOWED_PACKAGES: dict[str, set[str]] = {
    "hived": set(),
    "hived_config": {"hived"},
    "hived_extender": {"hived", "hived_config"},
}

# The core, lowest layer first. A module may import from lower layers, never from its own or a higher one, except that
# the plain values of the first layer may use each other.
CORE_LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "specs", "events", "decisions", "jit"),
    ("topology",),
    ("state",),
    ("journal",),
    ("buddy",),
    ("binding", "placement"),
    ("mapping", "health", "groups"),
    ("allocation",),
    ("preemption",),
    ("scheduler", "status"),
    ("simulator",),
)

# What gives the core a clock, a file, a log, a thread or the network.
FORBIDDEN_IN_CORE = {
    "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "selectors", "shutil", "signal", "socket",
    "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
CORE_EXCEPTIONS = {"jit": {"os", "pathlib"}}  # finds the folder of the compiled kernels

# Third-party packages that only these modules may import.
ONLY_IN = {
    "kubernetes": {"hived_extender.kube"},
    "yaml": {"hived_config", "hived_extender"},
    "numba": {"hived.jit"},
}

# Import names of distributions whose name differs.
DISTRIBUTION_OF = {"yaml": "PyYAML", "prometheus_client": "prometheus-client"}


def modules() -> dict[str, Path]:
    """Every module of the three packages by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()
CORE_MODULES = sorted(name for name in MODULES if name.startswith("hived."))


def imports(module: str) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of everything a module imports, also inside functions."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in MODULES else str(node.module)), node.lineno


def layer_of(module: str) -> int:
    """The layer of a core module; -1 for the package itself, which anyone may import."""
    name = module.removeprefix("hived").removeprefix(".")
    return next((layer for layer, names in enumerate(CORE_LAYERS) if name in names), -1)


@pytest.mark.parametrize("module", MODULES)
def test_a_package_imports_only_the_packages_below_it(module: str) -> None:
    package = module.split(".", maxsplit=1)[0]
    wrong = [
        f"{module}:{line} imports {name}"
        for name, line in imports(module)
        if (target := name.split(".")[0]) in PACKAGES and target not in {package, *ALLOWED_PACKAGES[package]}
    ]
    assert not wrong


@pytest.mark.parametrize("module", CORE_MODULES)
def test_a_core_module_has_a_layer_and_imports_only_lower_ones(module: str) -> None:
    layer = layer_of(module)
    assert layer >= 0, f"{module} has no place in CORE_LAYERS"
    wrong = [
        f"{module}:{line} imports {name}"
        for name, line in imports(module)
        if name.startswith("hived.") and layer_of(name) >= layer and not (layer == 0 and layer_of(name) == 0)
    ]
    assert not wrong


@pytest.mark.parametrize("module", CORE_MODULES)
def test_the_core_needs_nothing_but_numpy_and_numba(module: str) -> None:
    allowed = {"hived", "numpy", "numba"} | (sys.stdlib_module_names - FORBIDDEN_IN_CORE)
    allowed |= CORE_EXCEPTIONS.get(module.removeprefix("hived."), set())
    wrong = [f"{module}:{line} imports {name}" for name, line in imports(module) if name.split(".")[0] not in allowed]
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_a_library_is_imported_only_where_it_is_wrapped(module: str) -> None:
    wrong = [
        f"{module}:{line} imports {name}"
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


def undocumented(module: str) -> Iterator[str]:
    """Public functions, classes and methods without a docstring, and the module itself if it has none."""

    def visit(node: ast.Module | ast.ClassDef, place: str) -> Iterator[str]:
        for child in node.body:
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if not child.name.startswith("_"):
                if ast.get_docstring(child) is None and not is_overload(child):
                    yield f"{place}.{child.name} (line {child.lineno})"
                if isinstance(child, ast.ClassDef):
                    yield from visit(child, f"{place}.{child.name}")

    def is_overload(node: ast.AST) -> bool:
        return any(isinstance(each, ast.Name) and each.id == "overload" for each in getattr(node, "decorator_list", ()))

    tree = ast.parse(MODULES[module].read_text())
    if ast.get_docstring(tree) is None:
        yield module
    yield from visit(tree, module)


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_is_documented(module: str) -> None:
    assert not list(undocumented(module))


@pytest.mark.parametrize("folder", ["hived", "config", "config/hived_config", "extender", "extender/hived_extender",
                                    "tests", "examples"])  # fmt: skip
def test_every_folder_says_what_may_live_there(folder: str) -> None:
    assert (ROOT / folder / "README.md").read_text().strip()
