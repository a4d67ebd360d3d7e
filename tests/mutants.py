"""``make mutants``: small faults are put into modules one by one, and the tests have to notice.

A fault is one changed operator, number, condition or statement. Each runs in a fork of a process
that has the large libraries loaded, with a finder that gives the changed module in place of its
file; no file is touched. The result is ``docs/mutants.md``.

    python tests/mutants.py [--sample 40] [--seed 0] [MODULE ...]

Only modules without compiled functions are changed: of the others the machine code kept on disk
would run. With modules named, the rows of the others stay as they are in the page.
"""

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mutants.md"
#: The modules, each with the tests that are to notice, the quickest first.
MODULES = {
    "full_model.comparison.outcome": ["full_model/comparison/test_outcome.py"],
    "flowsim.landscape.basins": ["landscape/test_landscape.py", "models/test_linear_attention.py"],
    "full_model.lift.projection": [
        "full_model/lift/test_projection.py",
        "full_model/lift/test_lift.py",
    ],
    "flowsim.landscape.labels": ["landscape/test_landscape.py"],
    "flowsim.models.gap_loss": ["models/test_models.py", "properties/test_extremes.py"],
    "flowsim.models.linear": ["models/test_linear_attention.py", "properties/test_symmetries.py"],
    "flowsim.models.states.states_plane": ["models/test_states_model.py", "properties/test_extremes.py"],
    "flowsim.models.bias": ["models/test_rank_one.py", "models/test_attention.py"],
    "flowsim.models.rank_one_point": ["models/test_rank_one.py", "full_model/lift/test_lift.py"],
    "flowsim.flow.hitting_times": ["flow/test_times.py"],
    "flowsim.flow.rows.smooth.smooth_ends": [
        "flow/test_uniform_rows.py",
        "flow/test_attention_flow.py",
    ],
    "flowsim.scan.store": ["scan/test_store.py"],
}
_TWICE = "the line before has returned where they are equal"
_AT_SADDLE = "at w = −1/√2 every e ≠ 0 has more energy than the saddle"
#: Why a fault cannot be noticed, by module and fault.
REASONS = {
    ("full_model.comparison.outcome",
     "`(lowest > 0) & (effective > 0)` becomes `(lowest > 0) | (effective > 0)`"):
    "with π₀π₁ > 0 both hold or neither",
    ("full_model.comparison.outcome", "`-1` becomes `1`"): "of two axes the last one is 1",
    ("full_model.comparison.outcome", "`lowest > 0` becomes `lowest >= 0`"):
    "rounded eigenvalues are not 0",
    ("full_model.lift.projection",
     "`_apply(parts['0.up'], alpha) * torch.where(point.w1 < 0, -1.0, 1.0).to(e).unsque` becomes "
     "`_apply(parts['0.up'], alpha) / torch.where(point.w1 < 0, -1.0, 1.0).to(e).unsque`"):
    "the factor is 1 or −1",
    ("flowsim.models.gap_loss", "`0` becomes `1`"):
    "between a logit of 0 and one of 1 both forms are right to rounding",
    ("flowsim.landscape.basins",
     "`chain.second_eigenvalue < 0` becomes `chain.second_eigenvalue <= 0`"): _TWICE,
    ("flowsim.landscape.basins",
     "`chain.second_eigenvalue > 0` becomes `chain.second_eigenvalue >= 0`"): _TWICE,
    ("flowsim.landscape.basins",
     "`energy(theta) > SADDLE_ENERGY` becomes `energy(theta) >= SADDLE_ENERGY`"):
    "a rounded start lies beside the separatrix, not on it",
    ("flowsim.landscape.basins", "`w > SADDLE_W` becomes `w >= SADDLE_W`"): _AT_SADDLE,
    ("flowsim.landscape.basins", "`w <= SADDLE_W` becomes `w < SADDLE_W`"): _AT_SADDLE,
    ("flowsim.landscape.basins", "`w < SADDLE_W` becomes `w <= SADDLE_W`"): _AT_SADDLE,
}  # fmt: skip

_COMPARED = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_COMBINED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip


def changed(node):
    """Faulty forms of a node of the syntax tree."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in _COMPARED[type(node.ops[0])]:
            yield ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMBINED:
        yield ast.BinOp(node.left, _COMBINED[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        other = (
            not value if isinstance(value, bool) else value + 1 if value in (0, 1) else 2 * value
        )
        yield ast.Constant(other)
    elif isinstance(node, (ast.Raise, ast.Continue)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def faults(tree):
    """(line, what is changed, the whole changed tree) for every fault of a module."""
    skipped = set()
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            skipped |= {id(inner) for inner in ast.walk(part)} if part is not None else set()
        if isinstance(node, ast.JoinedStr):  # the words of messages
            skipped |= {id(inner) for inner in ast.walk(node)}
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for other in changed(node):
            whole = copy.deepcopy(tree)
            target = list(ast.walk(whole))[place]
            _Exchange(target, ast.copy_location(copy.deepcopy(other), node)).visit(whole)
            words = [" ".join(ast.unparse(part).split())[:80] for part in (node, other)]
            yield node.lineno, " becomes ".join(f"`{text}`" for text in words), whole


class _Exchange(ast.NodeTransformer):
    def __init__(self, target, other):
        self.target, self.other = target, other

    def visit(self, node):
        return self.other if node is self.target else super().generic_visit(node)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module from a syntax tree."""

    def __init__(self, name, tree):
        self.name, self.tree = name, ast.fix_missing_locations(tree)

    def find_spec(self, fullname, path, target=None):
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, source_of(fullname), loader=self)

    def exec_module(self, module):
        exec(compile(self.tree, module.__file__, "exec"), module.__dict__)


def source_of(name):
    return ROOT.joinpath(*name.split(".")).with_suffix(".py")


def noticed(name, tree, tests, limit):
    """Whether the tests fail with this tree in place of the module, or do not end in time."""
    child = os.fork()
    if child == 0:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        sys.meta_path.insert(0, _Finder(name, tree))
        os._exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])))
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def attack(name, sample, seed):
    """A module's row of the page, and a line for each fault that was not noticed."""
    tests = [str(ROOT / "tests" / test) for test in MODULES[name]]
    tests = [test for test in tests if Path(test).exists()]
    tree = ast.parse(source_of(name).read_text())
    began = time.monotonic()
    assert not noticed(name, tree, tests, 3600), f"{name}: the tests fail without any fault"
    limit = 60 + 5 * (time.monotonic() - began)
    every = list(faults(tree))
    tried = random.Random(seed).sample(every, min(sample, len(every)))
    survived = []
    for line, words, other in sorted(tried, key=lambda fault: fault[0]):
        if not noticed(name, other, tests, limit):
            survived.append((line, words))
            print(f"{name}:{line}: {words}", flush=True)
    print(f"{name}: {len(tried) - len(survived)} of {len(tried)} noticed", flush=True)
    row = f"| `{name}` | {len(every)} | {len(tried)} | {seed} | {len(tried) - len(survived)} |"
    lost = []
    for line, words in survived:
        reason = REASONS.get((name, words), "no test looks at it")
        lost.append(f"- `{name}`, line {line}: {words}: {reason}.")
    return row, lost


def former():
    """What the page says of each module: its row, and its faults that were not noticed."""
    text = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = {name: line for name in MODULES for line in text if line.startswith(f"| `{name}` |")}
    return {n: (row, [x for x in text if x.startswith(f"- `{n}`,")]) for n, row in rows.items()}


def page(found):
    """The result as Markdown."""
    counts = [[int(word) for word in row.split("|")[2:-1]] for row, _ in found.values()]
    tried, good = (sum(count[i] for count in counts) for i in (1, 3))
    lines = [
        "# Mutants",
        "",
        "What `make mutants` found last: small faults, put into a module one by one, and whether "
        "its tests noticed.",
        f"The faults tried are drawn with a seed; Python {sys.version.split()[0]}, torch "
        f"{version('torch')}. Modules with compiled functions are not changed.",
        f"Noticed were {good} of {tried}.",
        "",
        "| module | faults | tried | seed | noticed |",
        "|---|---|---|---|---|",
        *(row for row, _ in found.values()),
        "",
        "## Not noticed",
        "",
    ]
    lines += [line for _, lost in found.values() for line in lost]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="by default all of them")
    parser.add_argument("--sample", type=int, default=40, help="faults of each module")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for library in ("h5netcdf", "matplotlib.pyplot", "mpmath", "numba", "scipy.stats", "torch",
                    "torchdiffeq", "xarray"):  # fmt: skip
        importlib.import_module(library)
    sys.path.insert(0, str(ROOT))
    found = former() if given.modules else {}
    for name in given.modules or MODULES:
        found[name] = attack(name, given.sample, given.seed)
        PAGE.write_text(page({name: found[name] for name in MODULES if name in found}))


if __name__ == "__main__":
    main()
