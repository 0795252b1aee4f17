"""Object code of all entry kernels, as one module that LLVM optimizes as a whole.

numba translates each kernel, and shows it with all that it calls in LLVM's form. All are linked into one module, in
which a helper exists once, and optimized for each kind of CPU. An entry point takes an array of 64-bit words for the
arguments and another one for the results. It returns a status, and unless that is 0, the number of an exception, whose
class and text are known when hived is built.
"""

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, get_args

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hived.kernels.compiling.dispatchers import INNER_OPTIONS, Twins, compile_alone, types_of
from hived.kernels.jit import parameters

Error = tuple[str, str, str]
"""The module and the name of the class of an exception, and its text."""

_WORDS = types.CPointer(types.int64)
_PICKLED = re.compile(r'^@(\.const\.pickledata\.\S+) = internal constant \[\d+ x i8\] c"(.*)"$', re.MULTILINE)
_ESCAPED = re.compile(r"\\([0-9A-F]{2})")
_RAISED = re.compile(r"^(@\.const\.picklebuf\.\S+ = internal constant) .* \{ ptr @(\S+), .*$", re.MULTILINE)
_FULL, _CHEAP = 3, 0

TRANSLATING = {"NUMBA_OPT": "0", "NUMBA_CPU_NAME": "generic"}
"""The environment in which `translate` is quick: LLVM optimizes later, for other kinds of CPU."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of CPU by LLVM's names. `feature` is what GCC's `__builtin_cpu_supports` calls it; nothing if every CPU of
    the architecture will do.
    """

    name: str
    triple: str
    cpu: str
    feature: str = ""


_RESULTS = {None: ("none", 0), bool: ("bool", 1), int: ("int", 1)}


def symbol_of(function: Callable[..., Any]) -> str:
    """The name of an entry kernel's entry point in object code."""
    return f"hived_{function.__name__}"


def result_of(function: Callable[..., Any]) -> tuple[str, int]:
    """The result of a kernel, `none`, `bool`, `int` or `tuple`, and how many words it takes."""
    kind = function.__annotations__["return"]
    return ("tuple", len(get_args(kind))) if get_args(kind) else _RESULTS[kind]


def translate(entries: list[Callable[..., Any]], tell: Callable[[int, int], None]) -> tuple[bytes, list[Error]]:
    """Let numba translate entry kernels and all that they call; `tell` is called with the number translated.

    Returns bitcode of LLVM, whose only external functions are the entry points, and the exceptions by their numbers.
    """
    twins, errors = Twins(compile_alone), list[Error]()
    whole = llvm.parse_assembly("")
    for done, function in enumerate(entries):
        tell(done, len(entries))
        entry = numba.njit(**INNER_OPTIONS)(_entry_point(function, compile_alone(twins.twin(function))))
        entry.compile((_WORDS, _WORDS))
        module = llvm.parse_assembly(_number_errors(entry.inspect_llvm(entry.signatures[0]), errors))
        for each in module.functions:
            if each.linkage == llvm.Linkage.external and not each.is_declaration:
                each.name = symbol_of(function)
        whole.link_in(module)
    for each in (*whole.functions, *whole.global_variables):
        if each.linkage != llvm.Linkage.external:
            each.linkage = llvm.Linkage.internal
    return whole.as_bitcode(), errors


def emit(bitcode: bytes, target: Target) -> bytes:
    """Optimize kernels for a CPU, and return them as an object file. Its entry points end with the target's name.

    Raises ValueError if a kernel uses a part of numpy that needs numba where it runs, such as `array.min()`.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features="", opt=_FULL, reloc="pic", codemodel="small"
    )
    module = llvm.parse_bitcode(bitcode)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        if function.linkage == llvm.Linkage.external and not function.is_declaration:
            function.name, function.visibility = f"{function.name}_{target.name}", "hidden"
    for level in (_CHEAP, _FULL):
        options = llvm.create_pipeline_tuning_options(level)
        options.loop_vectorization, options.slp_vectorization = level == _FULL, False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if level == _CHEAP:  # as numba does it: counts of references vanish where functions are inlined already
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.add_refprune_pass()
        passes.run(module, builder)
    missing = sorted(each.name for each in module.functions if each.is_declaration and each.name.startswith("numba_"))
    if missing:
        raise ValueError(f"kernels call functions of numba that no library has: {', '.join(missing)}")
    code: bytes = machine.emit_object(module)
    return code


def _number_errors(text: str, errors: list[Error]) -> str:
    """Put numbers in the place of exceptions, which numba pickles with the path of the source that raises them."""
    pickled = dict(_PICKLED.findall(text))

    def number(found: re.Match[str]) -> str:
        data = _ESCAPED.sub(lambda each: chr(int(each[1], 16)), pickled[found[2]]).encode("latin-1")
        kind, arguments, _ = pickle.loads(data)
        error = kind.__module__, kind.__qualname__, arguments[0] if arguments else ""
        if error not in errors:
            errors.append(error)
        return f"{found[1]} i32 {errors.index(error)}"

    return _RAISED.sub(number, text)


def _entry_point(function: Callable[..., Any], kernel: Any) -> Callable[..., Any]:
    """A function for numba that reads the arguments from words, calls the kernel, and writes its results to words."""
    names: dict[str, Any] = {"kernel": kernel, "carray": numba.carray}  # type: ignore[attr-defined]  # it is public
    values: list[str] = []
    place = 0
    for parameter, kind in zip(parameters(function), types_of(function), strict=True):
        word = f"words[{place}]"
        if parameter.is_array:
            names[f"read_{place}"] = _reader_of(types.CPointer(kind.dtype))
            word, place = f"carray(read_{place}({word}), words[{place + 1}])", place + 1
        elif parameter.kind is bool:
            word += " != 0"
        elif parameter.kind is not int:
            names[f"read_{place}"] = _reader_of(kind)
            word = f"read_{place}({word})"
        values.append(word)
        place += 1
    gives, count = result_of(function)
    targets = {"none": "_", "tuple": ", ".join(f"results[{i}]" for i in range(count))}.get(gives, "results[0]")
    source = f"def entry(words, results):\n    {targets} = kernel({', '.join(values)})\n    return 0\n"
    exec(compile(source, "", "exec"), names)  # numba translates functions of Python only
    entry: FunctionType = names["entry"]
    entry.__name__ = entry.__qualname__ = symbol_of(function)
    return entry


def _reader_of(kind: Any) -> Any:
    """A function of kernels that takes a word as a pointer or a block."""

    def read(_typing: Any, _word: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            machine_type = context.get_value_type(kind)
            return builder.inttoptr(values[0], machine_type) if isinstance(machine_type, ir.PointerType) else values[0]

        return kind(types.int64), generate

    return intrinsic(read)
