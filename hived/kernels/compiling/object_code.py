"""Object code of all entry kernels, as one module that LLVM optimizes as a whole.

numba usually optimizes each kernel together with a copy of all that it calls. Here it only translates every function,
once; then all are linked into one module and optimized for each kind of CPU. That takes a third of the time, and the
code of a helper exists once. The entry points have plain C types: an array of 64-bit words for the arguments, another
one for the results, and a status. An exception is a number, whose class and text are known when hived is built.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.callconv import RETCODE_NONE, MinimalCallConv
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.runtime.nrtdynmod import create_nrt_module

from hived.kernels.compiling.dispatchers import Twins, compile_alone, types_of

_WORD, _STATUS, _BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_FIRST_ERROR = 1
STATUS_NONE: int = RETCODE_NONE.constant
"""The status of a kernel that returns nothing; 0 is as good."""

_FULL, _CHEAP = 3, 0


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of CPU by LLVM's names. `feature` is what GCC's `__builtin_cpu_supports` calls it; nothing if every CPU of
    the architecture will do.
    """

    name: str
    triple: str
    cpu: str
    feature: str = ""


@dataclass(frozen=True, slots=True)
class Translation:
    """All kernels in LLVM's form, not optimized yet, with one entry point for each entry kernel.

    results : for the entry point of each kernel `none`, `bool`, `int` or `tuple`, and how many words it returns

    errors : (module, class, text) of the exceptions that statuses from 1 on stand for
    """

    bitcode: bytes
    results: dict[str, tuple[str, int]]
    errors: tuple[tuple[str, str, str], ...]


class _Convention(MinimalCallConv):
    """The calling convention between kernels: the status is an exception's number, whichever function raised it."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.errors: list[tuple[str, str, str]] = []

    def return_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        """Return the number of the exception."""
        text = exc_args[0] if exc_args else ""
        error = (exc.__module__, exc.__qualname__, text)
        if error not in self.errors:
            self.errors.append(error)
        self._return_errcode_raw(builder, _FIRST_ERROR + self.errors.index(error))


class _Untouched(JITCodeLibrary):
    """A function as numba has translated it; nothing is optimized, linked or loaded."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Do nothing; `emit` finishes all functions together."""
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        """Unsupported: no function is loaded."""
        return 0


class _Codegen(JITCPUCodegen):
    """Keeps what numba has translated."""

    _library_class = _Untouched

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.libraries: list[_Untouched] = []

    def create_library(self, name: str, **options: Any) -> Any:
        """A place for one function."""
        library = super().create_library(name, **options)
        self.libraries.append(library)
        return library

    def set_env(self, _name: str, _env: object) -> None:
        """Do nothing: no function runs, so none needs Python's objects."""


def symbol_of(function: Callable[..., Any]) -> str:
    """The name of an entry kernel's entry point in object code."""
    return f"hived_{function.__name__}"


def translate(entries: list[Callable[..., Any]], tell: Callable[[int, int], None]) -> Translation:
    """Let numba translate entry kernels and all that they call. `tell` is called with the number translated.

    numba cannot be used for anything else in this process any more.
    """
    with _translating() as (context, codegen):
        dispatchers = {}
        twins = Twins(compile_alone)
        for done, function in enumerate(entries):
            tell(done, len(entries))
            dispatcher = dispatchers[function] = compile_alone(twins.twin(function))
            dispatcher.compile(types_of(function))
        whole = llvm.parse_assembly(str(create_nrt_module(context)[0]))
        for library in codegen.libraries:
            whole.link_in(library._final_module, preserve=True)
        results = {}
        for function, dispatcher in dispatchers.items():
            (compiled,) = dispatcher.overloads.values()
            whole.link_in(llvm.parse_assembly(str(_entry_point(context, symbol_of(function), compiled.fndesc))))
            results[symbol_of(function)] = _result(compiled.signature.return_type)
        return Translation(whole.as_bitcode(), results, tuple(context.call_conv.errors))


def emit(translation: Translation, target: Target) -> bytes:
    """Optimize kernels for a CPU, and return them as an object file. Its entry points end with the target's name.

    Raises ValueError if a kernel uses a part of numpy that needs numba where it runs, such as `array.min()`.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features="", opt=_FULL, reloc="pic", codemodel="small"
    )
    module = llvm.parse_bitcode(translation.bitcode)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        if function.name in translation.results:
            function.name, function.visibility = f"{function.name}_{target.name}", "hidden"
        elif not function.is_declaration:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
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


@contextmanager
def _translating() -> Iterator[tuple[Any, _Codegen]]:
    """numba's context for this machine, with our convention in the place of its own."""
    context = cpu_target.target_context
    rtsys.initialize(context)
    codegen = _Codegen("hived")
    convention = _Convention(context)

    class Context(CPUContext):
        """The same context with other properties."""

        call_conv = property(lambda _: convention)

        def create_cpython_wrapper(self, *_: Any, **_options: Any) -> None:
            """Do nothing: Python calls no function of numba's own."""

        create_cfunc_wrapper = create_cpython_wrapper

        def add_dynamic_addr(self, builder: Any, intaddr: int, info: object) -> Any:
            """Compile an address of this process, which differs each time, to null: kernels are linked by name."""
            return ir.Constant(_BYTES, None)

    before = context._internal_codegen
    with global_compiler_lock:
        context._internal_codegen, context.__class__ = codegen, Context
        try:
            yield context, codegen
        finally:
            context._internal_codegen, context.__class__ = before, CPUContext


def _entry_point(context: Any, symbol: str, description: Any) -> ir.Module:
    """A function that reads the arguments from words, calls the kernel, and writes the results to words."""
    module = ir.Module(symbol)
    words = _WORD.as_pointer()
    machine_type = context.call_conv.get_function_type(description.restype, description.argtypes)
    kernel = ir.Function(module, machine_type, description.llvm_func_name)
    entry = ir.Function(module, ir.FunctionType(_STATUS, [words, words]), symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    result = builder.alloca(machine_type.args[0].pointee)
    builder.store(ir.Constant(result.type.pointee, None), result)
    values = []
    for place, kind in enumerate(machine_type.args[1:]):
        word = builder.load(builder.gep(entry.args[0], [_WORD(place)]))
        if isinstance(kind, ir.PointerType):
            values.append(builder.inttoptr(word, kind))
        else:
            values.append(word if kind == _WORD else builder.trunc(word, kind))
    status = builder.call(kernel, [result, *values])
    value = builder.load(result)
    if isinstance(value.type, ir.IntType):
        parts = [value]
    elif isinstance(value.type, ir.PointerType):
        parts = []
    else:
        parts = [builder.extract_value(value, place) for place in range(len(value.type.elements))]
    for place, part in enumerate(parts):
        word = part if part.type == _WORD else builder.zext(part, _WORD)
        builder.store(word, builder.gep(entry.args[1], [_WORD(place)]))
    builder.ret(status)
    return module


def _result(kind: Any) -> tuple[str, int]:
    if kind == types.none:
        return "none", 0
    if kind == types.boolean:
        return "bool", 1
    if kind == types.int64:
        return "int", 1
    assert all(each == types.int64 for each in kind), kind
    return "tuple", len(kind)
