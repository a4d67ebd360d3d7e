"""``make mutants``: small faults are put into modules one by one, and the tests have to notice.

A fault is one changed operator, number, condition or statement. First the tests run once, each
within ``LIMIT`` seconds, with modules that note which statements each test reaches. Then each fault
runs in a fork of a process that has the large libraries loaded, with a finder that gives the
changed module in place of its file; no file is touched. Tests that reach the changed
statement run, the quickest first, for about ``BUDGET`` seconds, until one fails; of a statement
that runs at import, tests that reach what reads its names; where time is left, any other tests of
the module. Slow tests and those that take turns count too. The result is ``tests/MUTANTS.md``.

    python tests/mutants.py [--sample 6] [--seed 0] [MODULE ...]

Of functions compiled by numba the machine code kept on disk would run: modules with them, or with
nothing but numbers that they may hold, are tried as plain Python (NUMBA_DISABLE_JIT=1), where
dividing by zero raises instead of giving infinity. The page is written after each module; the rows
of modules that are not tried, or not yet where Ctrl-C or SIGTERM ends the run, stay as they are.

Own code, because mutmut and cosmic-ray start a Python for each fault, which here loads torch, numba
and scipy for 3 s and all tests of a file for longer, and cannot choose plain Python by module.
"""

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "MUTANTS.md"
#: Seconds of CPU time: of one test of the first run, and of the tests of one fault.
LIMIT, BUDGET = 4.0, 24.0
#: The tests of modules as they are, and of those with compiled functions.
TESTS = [
    "models", "landscape", "flow", "full_model/lift", "full_model/comparison/test_outcome.py",
    "full_model/comparison/test_fields.py",
    "full_model/comparison/test_states_comparison.py",
    "full_model/training/test_training.py", "full_model/test_what_is_refused.py",
    "scan/test_store.py", "scan/test_gaussian.py", "properties", "records", "cli/test_info.py",
    "test_front_door.py", "portraits", "training", "test_spec.py", "docs/test_doctests.py",
    "cli/test_vocabulary.py", "cli/test_refused.py", "explorer/test_view_and_link.py",
]  # fmt: skip
PLAIN_TESTS = [
    "flow/test_plain_python.py", "flow/test_rank_one_parts.py",
    "flow/test_attention_rows.py", "flow/test_problems.py", "flow/test_uniform_rows.py",
    "full_model/lift/test_states.py", "full_model/lift/test_induction_fit.py",
    "flow/test_resolve_near_saddles.py", "models/test_elementary.py", "test_spec.py",
    "models/test_induction.py", "models/test_states_models.py",
    "properties/test_extremes.py::test_loss_bias_and_gradient_in_forty_digits",
    "flow/test_rows.py::test_the_step_has_order_five_and_its_error_estimate_order_four",
    "landscape/test_landscape.py::test_codes_of_records_never_change",
    "flow/test_gap_engine.py::test_the_slope_is_right_to_rounding_next_to_the_minimum",
    *(f"flow/test_paths.py::test_{name}" for name in (
        "small_starts_leave_the_plane_in_time",
        "a_path_is_as_right_between_the_ends_of_its_steps_as_there",
        "beside_a_equal_minus_one_the_error_is_that_of_a_and_not_that_of_the_gap",
        "starts_that_never_move_stay_and_zero_coordinates_stay_zero",
        "starts_that_cross_zero_fall_into_the_plane_lie_far_out_or_on_the_separatrix",
    )),
]  # fmt: skip
#: Where faults are put.
PLACES = [
    "flowsim/models", "flowsim/flow", "flowsim/landscape", "full_model/lift",
    "full_model/comparison/outcome.py", "flowsim/scan/store.py",
]  # fmt: skip


def reasons(title):
    """{(module, fault): why it is not noticed}, of those under a title of ``mutant_reasons.md``."""
    text = (ROOT / "tests" / "mutant_reasons.md").read_text().partition(f"## {title}\n")[2]
    said = re.findall(
        r"^- `([\w.]+)`: (`.*` becomes `.*?`): (.*)\.$", text.partition("\n## ")[0], re.M
    )
    return {(module, fault): why for module, fault, why in said}


#: Faults that change nothing that is computed, and others that no test notices.
REASONS, OTHERS = reasons("What cannot be noticed"), reasons("Not noticed")
#: What is said of a fault without a reason.
_SILENT = "no test notices"

_COMPARED = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_COMBINED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip


def modules():
    """The names of all modules where faults are put, and whether each is tried as plain Python."""
    found = {}
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            text = file.read_text()
            if text:
                parts = file.relative_to(ROOT).with_suffix("").parts
                name = ".".join(part for part in parts if part != "__init__")
                by_numba = re.search(r"@(compiled|template|hook)\b", text) is not None
                found[name] = by_numba or "def " not in text
    return found


def source_of(name):
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


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
        counted = isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int)
        if counted:  # often an axis: of two axes −1 and 1 are the same
            yield ast.UnaryOp(node.op, ast.Constant(node.operand.value + 1))
        else:
            yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        larger = value + 1 if value <= 1 else 2 * value  # a tolerance becomes more than 1
        yield ast.Constant(not value if isinstance(value, bool) else larger)
    elif isinstance(node, (ast.Raise, ast.Continue)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def _skipped(tree):
    """Nodes that are no part of what is computed: annotations, decorators, words of messages."""
    for node in ast.walk(tree):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += getattr(node, "decorator_list", [])
        if isinstance(node, (ast.JoinedStr, ast.Raise)):  # a raise as a whole may still be left out
            parts += list(ast.iter_child_nodes(node))
        for part in filter(None, parts):
            yield from map(id, ast.walk(part))


def faults(tree):
    """Every fault of a module: the place of its node among all, and a number among its forms."""
    skipped = set(_skipped(tree))
    for place, node in enumerate(ast.walk(tree)):
        if id(node) not in skipped:
            for form, _ in enumerate(changed(node)):
                yield place, form


def with_fault(tree, place, form):
    """(line, what is changed, line of the statement or None, the whole changed tree)."""
    whole = copy.deepcopy(tree)
    node = list(ast.walk(whole))[place]
    other = ast.copy_location(copy.deepcopy(list(changed(node))[form]), node)
    words = [" ".join(ast.unparse(part).split())[:80] for part in (node, other)]
    line = _statements(whole).get(id(node))
    _Exchange(node, other).visit(whole)
    return node.lineno, " becomes ".join(f"`{text}`" for text in words), line, whole


def _statements(tree):
    """The line of the innermost statement of a function that holds a node, by the node's id."""
    found = {}

    def visit(node, line):
        if line is not None:
            found[id(node)] = line
        inside = isinstance(node, (ast.FunctionDef, ast.Lambda))
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    here = line
                    if isinstance(child, ast.stmt) and (inside or line is not None):
                        here = child.lineno
                    elif inside and name != "body":
                        here = line  # decorators and defaults
                    visit(child, here)

    visit(tree, None)
    return found


class _Exchange(ast.NodeTransformer):
    def __init__(self, target, other):
        self.target, self.other = target, other

    def visit(self, node):
        return self.other if node is self.target else super().generic_visit(node)


class _Noting(ast.NodeTransformer):
    """Puts a note of its line before every statement of every function."""

    def __init__(self, name):
        self.name, self.depth = name, 0

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def generic_visit(self, node):
        super().generic_visit(node)
        if self.depth:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, [part for s in block for part in (self._note(s), s)])
        return node

    def _note(self, statement):
        call = f"__reached__.add(({self.name!r}, {statement.lineno}))"
        return ast.copy_location(ast.parse(call).body[0], statement)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives modules from syntax trees."""

    def __init__(self, trees, reached=None):
        self.trees, self.reached = trees, reached

    def find_spec(self, fullname, path, target=None):
        if fullname not in self.trees:
            return None
        file = source_of(fullname)
        inside = [] if file.name == "__init__.py" else None  # else it would be no package
        return importlib.util.spec_from_file_location(
            fullname, file, loader=self, submodule_search_locations=inside
        )

    def exec_module(self, module):
        module.__dict__["__reached__"] = self.reached
        tree = ast.fix_missing_locations(self.trees[module.__name__])
        exec(compile(tree, module.__file__, "exec"), module.__dict__)


class _TooLongError(BaseException):
    """A test of the first run has had its time."""


class _Notes:
    """For each test that passes: its seconds, and the statements that it and its fixtures reach."""

    def __init__(self, reached):
        self.reached, self.found, self.fixtures, self.began = reached, {}, {}, 0.0

    def _stop(self, *_):
        raise _TooLongError

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self):
        signal.signal(signal.SIGVTALRM, self._stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        try:
            return (yield)
        except _TooLongError:
            pass
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return pytest.skip("takes too long")  # not in the frames that were stopped

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """One of a whole file is set up in its first test, and counts in each that has it."""
        before, began = set(self.reached), time.process_time()
        self.reached.clear()
        result = yield
        spent, (_, known) = time.process_time() - began, self.fixtures.get(fixturedef, (0, set()))
        self.fixtures[fixturedef] = spent, known | self.reached
        self.reached.update(before)
        self.began += spent
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.reached.clear()
        self.began = time.process_time()
        result = yield
        if item.nodeid in self.found:
            several = item._fixtureinfo.name2fixturedefs.values()
            used = [self.fixtures[one] for all_ in several for one in all_ if one in self.fixtures]
            cost = time.process_time() - self.began + sum(spent for spent, _ in used)
            self.found[item.nodeid] = [cost, sorted(self.reached.union(*(at for _, at in used)))]
        return result

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.found[report.nodeid] = []
        elif not report.passed:
            self.found.pop(report.nodeid, None)
            print(f"not used: {report.nodeid} ({report.outcome})", flush=True)


class _Chosen:
    """Runs the chosen tests only, in their order."""

    def __init__(self, chosen):
        self.place = {name: i for i, name in enumerate(chosen)}

    def pytest_collection_modifyitems(self, items):
        kept = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place[item.nodeid])


def in_fork(work, limit, quiet=True):
    """Exit status of ``work()`` in a fork; negative where it took more CPU time than the limit.

    Not of the clock: what else the machine does must not decide.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        spent = int(sum(os.times()[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (spent + int(limit), spent + int(limit) + 5))
        if quiet:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
        os._exit(int(work()))
    done, ends = 0, time.monotonic() + 8 * limit  # one that waits for ever takes no CPU time
    try:
        while not done and time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.0 if done else 0.02)
    finally:
        if not done:
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def run_tests(trees, plain, arguments, plugin, reached=None):
    sys.meta_path.insert(0, _Finder(trees, reached))
    if plain:
        importlib.import_module("numba").config.DISABLE_JIT = True
        arguments = [*arguments, "-W", "ignore::RuntimeWarning"]  # compiled code does not warn
    common = ["-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", "--rootdir", str(ROOT),
              "--timeout=0", "--every", "-m", ""]  # fmt: skip
    return pytest.main([*common, *arguments], plugins=[plugin] if plugin else [])


def notes(names, plain):
    """What ``_Notes`` found in the tests with all the modules as they are."""
    tests = [str(ROOT / "tests" / test) for test in (PLAIN_TESTS if plain else TESTS)]
    if not plain:  # compiling would take all the time of the first tests
        in_fork(lambda: run_tests({}, plain, [str(ROOT / "tests" / PLAIN_TESTS[0])], None), 1800)
    trees = {name: _Noting(name).visit(ast.parse(source_of(name).read_text())) for name in names}
    with tempfile.NamedTemporaryFile("r") as file:

        def work():
            reached = set()
            plugin = _Notes(reached)
            run_tests(trees, plain, [*tests, "--tb=no"], plugin, reached)
            Path(file.name).write_text(json.dumps(plugin.found))
            return 0

        assert in_fork(work, 3600, quiet=False) == 0, "the tests could not be run"
        found = json.load(file)
    return {test: (cost, set(map(tuple, at))) for test, (cost, at) in found.items()}


def users(name, tree, fault_line):
    """Where a constant, assigned at this line of a module, is read: (module, line) of statements.

    In functions of the module itself, of those that import it, and in what is made of it.
    """
    wanted, found = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and (
            node.lineno <= fault_line <= node.end_lineno
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            wanted |= {part.id for target in targets for part in ast.walk(target)
                       if isinstance(part, ast.Name)}  # fmt: skip
    for other in modules():
        text = source_of(other).read_text()
        if other == name or f"{name} import" in text or f"import {name.split('.')[-1]}" in text:
            found |= _reads(other, ast.parse(text), set(wanted))
    return found


def _reads(name, tree, wanted):
    """Lines of a module's functions that read one of the names, or what is made of them."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and wanted & _names(node.value):
            wanted |= {part for target in node.targets for part in _names(target)}
    lines, inner = _statements(tree), set()
    for node in ast.walk(tree):
        read = (isinstance(node, ast.Name) and node.id in wanted) or (
            isinstance(node, ast.Attribute) and node.attr in wanted
        )
        if read and lines.get(id(node)):
            inner.add((name, lines[id(node)]))
    return inner


def _names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def chosen(known, places, also=()):
    """The quickest tests that reach one of the statements, or are among the others."""
    reach = {test: cost for test, (cost, at) in known.items() if at & places or test in also}
    tests, total = [], 0.0
    for test in sorted(reach, key=reach.get):
        total += reach[test]
        if tests and total > BUDGET:
            break
        tests.append(test)
    return tests, total


def noticed(name, plain, tree, tests, limit):
    """Whether the tests fail with this tree in place of the module, or do not end in time."""
    files = sorted({str(ROOT / test.split("::")[0]) for test in tests})
    arguments = ["-x", "--tb=no", *files]
    return in_fork(lambda: run_tests({name: tree}, plain, arguments, _Chosen(tests)), limit) != 0


def attack(name, plain, known, sample, seed):
    """Faults of a module, tried ones, the seed and how many were noticed; and those that were not,
    each as module, line and words.
    """
    tree = ast.parse(source_of(name).read_text())
    every = list(faults(tree))
    tried = random.Random(f"{seed} {name}").sample(every, min(sample, len(every)))
    survived = []
    for line, words, statement, other in sorted(
        (with_fault(tree, *fault) for fault in tried), key=lambda fault: fault[:2]
    ):
        if statement:
            tests, cost = chosen(known, {(name, statement)})
        else:  # a number that a test may read itself
            texts = {test: (ROOT / test.split("::")[0]).read_text() for test in known}
            word = name.rpartition(".")[2].replace("_", "-")  # how a model is called
            also = {test for test, text in texts.items() if name in text or f'"{word}"' in text}
            tests, cost = chosen(known, users(name, tree, line), also)
        if cost < BUDGET:  # it runs at import, or once in the first test that needs it
            every_place = {place for _, at in known.values() for place in at}
            more, more_cost = chosen(known, {place for place in every_place if place[0] == name})
            tests, cost = [*dict.fromkeys([*tests, *more])], cost + more_cost
        if not tests or not noticed(name, plain, other, tests, 20 + 10 * cost):
            survived.append((line, words))
            print(f"{name}:{line}: {words} ({len(tests)} tests, {cost:.1f} s)", flush=True)
    print(f"{name}: {len(tried) - len(survived)} of {len(tried)} noticed", flush=True)
    counts = len(every), len(tried), seed, len(tried) - len(survived)
    return counts, [(name, line, words) for line, words in survived]


def former(names):
    """What the page says of each module: its counts, and its faults that were not noticed."""
    found = {}
    for line in PAGE.read_text().splitlines() if PAGE.exists() else []:
        parts = [part.strip(" `") for part in line.split("|")]
        if line.startswith("| `") and parts[1] in names:
            found[parts[1]] = tuple(int(part) for part in parts[2:6]), []
        lost = re.match(r"- `([\w.]+)`, line (\d+): (`.*` becomes `.*?`)", line)
        if lost and lost[1] in found:
            found[lost[1]][1].append((lost[1], int(lost[2]), lost[3]))
    return found


def page(found):
    """The result as Markdown."""
    lost = [fault for _, faults in found.values() for fault in faults]
    same = [fault for fault in lost if (fault[0], fault[2]) in REASONS]
    open_ = [fault for fault in lost if fault not in same]
    tried = sum(counts[1] for counts, _ in found.values())
    good = tried - len(lost)
    lines = [
        "# Mutants",
        "",
        "What `make mutants` found last: small faults, put into a module one by one, and whether "
        "the tests noticed.",
        f"The faults tried are drawn with a seed; Python {sys.version.split()[0]}, torch "
        f"{version('torch')}.",
        f"Of {tried} faults in {len(found)} of the {len(modules())} modules of "
        f"{', '.join(f'`{place}`' for place in PLACES)}, {good} were noticed, "
        f"{len(same)} cannot be, since they change nothing that is computed; the tests missed "
        f"{len(open_)}.",
        f"Noticed were {good / max(tried - len(same), 1):.1%} of those that can be, and "
        f"{good / max(tried, 1):.1%} of all.",
        "Modules with compiled functions are tried as plain Python, where only the quick part of "
        "their tests runs.",
        "A row stays as it was found until its module is tried again. Modules that are not in the "
        "table have been written, or taken from others, since the last run.",
        "",
        "| module | faults | tried | seed | noticed | cannot be |",
        "|---|---|---|---|---|---|",
    ]
    for name, (counts, faults) in found.items():
        cells = [f"`{name}`", *counts, sum(fault in same for fault in faults)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for title, faults, reasons in (
        ("Not noticed", open_, OTHERS),
        ("What cannot be noticed", same, REASONS),
    ):
        lines += ["", f"## {title}", ""]
        lines += [
            f"- `{name}`, line {line}: {words}: {reasons.get((name, words), _SILENT)}."
            for name, line, words in faults
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="by default all of them")
    parser.add_argument("--sample", type=int, default=6, help="faults of each module")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # so that hypothesis can be loaded before
    for library in ("h5netcdf", "hypothesis", "matplotlib.pyplot", "mpmath", "numba", "scipy.stats",
                    "scipy.optimize", "torch", "torchdiffeq", "typer", "xarray"):  # fmt: skip
        importlib.import_module(library)
    sys.path.insert(0, str(ROOT))
    every = modules()
    names, found = given.modules or list(every), former(every)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for plain in (False, True):
        group = [name for name in names if every[name] == plain]
        known = notes(group, plain) if group else {}
        for name in group:
            found[name] = attack(name, plain, known, given.sample, given.seed)
            PAGE.write_text(page({name: found[name] for name in every if name in found}))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the page has what was found so far")
