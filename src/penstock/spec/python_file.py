"""What is wrong with a function or class that a spec names, found by reading its file: nothing is imported or run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from penstock.errors import counted
from penstock.spec.mistake import instead
from penstock.spec.python_step import PythonStep, parts
from penstock.spec.stateful import State


@dataclass(frozen=True)
class Fault:
    message: str
    hint: str | None = None


def file_of(module: str, base: Path) -> Path | None:
    """The file of a module in the directory of the spec."""
    path = base.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def fault_of(step: PythonStep | State, base: Path) -> Fault | None:
    """None also where the module is installed and is not a file that can be read."""
    written = step.function if isinstance(step, PythonStep) else step.processor
    kind = "function" if isinstance(step, PythonStep) else "class"
    module, name = parts(written)
    file = file_of(module, base)
    if file is None:
        if _installed(module):
            return None
        return Fault(f"no module '{module}'", _place(module, name, base))
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        return Fault(f"{file.name}:{error.lineno}: not Python: {error.msg}")
    except (OSError, ValueError) as error:
        return Fault(f"{file} cannot be read: {error}")
    names = list(_names(tree.body))
    if name not in names and "*" not in names:
        return Fault(f"no {kind} '{name}' in {file.name}", instead(name, _public(tree, kind)))
    return _wrong_number(step, tree, file) if isinstance(step, PythonStep) else _no_class(name, tree, file)


def _place(module: str, name: str, base: Path) -> str:
    if module.endswith(".py"):
        return f"a file is named as a module: {module.removesuffix('.py')}:{name}"
    return f"looked for {'/'.join(module.split('.'))}.py in {base}, then installed"


def _wrong_number(step: PythonStep, tree: ast.Module, file: Path) -> Fault | None:
    same = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == step.name]
    if len(same) != 1 or same[0] not in tree.body or same[0].decorator_list:
        return None
    taken = same[0].args
    most = len(taken.posonlyargs) + len(taken.args)
    least, given = most - len(taken.defaults), len(step.from_)
    if (given > most and not taken.vararg) or given < least:
        return Fault(f"{file.name}:{same[0].lineno}: '{step.name}' takes {counted(most, 'view')}, `from` names {given}")
    return None


def _no_class(name: str, tree: ast.Module, file: Path) -> Fault | None:
    found = next((each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
    if found is None or any(isinstance(each, ast.ClassDef) and each.name == name for each in tree.body):
        return None
    message = f"{file.name}:{found.lineno}: '{name}' is a function, and a processor is a class"
    return Fault(message, instead(name, _public(tree, "class")))


def _public(tree: ast.Module, kind: str) -> list[str]:
    wanted = ast.FunctionDef if kind == "function" else ast.ClassDef
    return [each.name for each in tree.body if isinstance(each, wanted) and not each.name.startswith("_")]


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Every name that the top of a module may bind; `*` where that cannot be told."""
    for each in body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name).split(".")[0] for alias in each.names)
            case ast.Assign():
                yield from (n.id for target in each.targets for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name() as name):
                yield name.id
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                yield "*"


def _installed(module: str) -> bool:
    top = module.split(".", maxsplit=1)[0]
    return top in sys.builtin_module_names or PathFinder.find_spec(top, sys.path) is not None
