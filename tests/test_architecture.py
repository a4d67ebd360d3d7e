"""The house: which room may know which, held for every file of both packages."""

import ast
from functools import cache
from pathlib import Path

from flowsim.spec import BUILT_IN

ROOT = Path(__file__).parents[1]
PACKAGES = ("flowsim", "full_model")

#: What a room's files may import of the project, beside their own room.
FLOWSIM = {
    "errors": "",
    "public_names": "errors",
    "reference": "",
    "labels": "",
    "memory": "errors",
    "running": "",
    "arrays": "errors",
    "compiled": "",
    "elementary": "compiled",
    "inheritance": "",
    "curves": "",
    "interface": "errors arrays labels inheritance curves",
    "own": "errors interface",
    "spec": "errors interface markov own",
    "records": "errors curves labels own spec interface",
    "markov": "errors",
    "chain": "errors markov",
    "landscape": "errors running labels curves arrays interface markov chain",
    "flow": "errors running labels arrays compiled elementary interface markov chain own "
    "spec landscape",
    "chains": "errors markov chain",
    "models": "errors labels curves arrays compiled elementary inheritance interface memory markov "
    "chain chains own spec flow training",
    "training": "errors running labels arrays interface markov chain own records landscape",
    "reduction": "errors running labels arrays interface markov chain landscape flow",
    "scan": "errors running labels arrays interface markov chain own spec records "
    "landscape flow training",
    "boundary": "errors running labels arrays interface memory markov chain records landscape flow "
    "scan",
    "bifurcation": "errors running labels curves arrays interface markov chain spec records "
    "landscape flow training scan boundary",
    "certificates": "errors labels interface own flow",
    "noise": "errors running labels arrays interface records landscape flow scan",
    "portraits": "errors running labels curves arrays interface markov chain spec records "
    "landscape flow training scan boundary bifurcation certificates",
    "drawing": "errors records curves",
    "exchange": "errors interface own records",
    "explorer": "errors labels curves interface markov chain spec records models landscape flow "
    "scan portraits drawing boundary",
    "cli": "errors labels arrays compiled interface memory records markov chain "
    "chains spec models landscape flow training scan boundary bifurcation noise portraits "
    "drawing explorer exchange",
}
#: Rooms of flowsim that may know full_model.
ABOVE_FULL_MODEL = ("explorer", "cli")
FULL_MODEL = {
    "model": "",
    "lift": "model",
    "training": "model lift",
    "theorems": "model lift",
    "comparison": "model lift training theorems",
}
#: Rooms of flowsim that full_model may know.
BELOW_FULL_MODEL = (
    "errors running labels arrays compiled elementary inheritance interface memory records markov "
    "chain chains spec own models landscape flow training scan"
)


def modules():
    """Every module of both packages: its dotted name and its file."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


FILES = dict(modules())
ENTRIES = {"flowsim", "full_model", "flowsim.__main__"}  # front doors, which name everything


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def imports(path):
    """The modules that a file imports, anywhere in it: of both packages, and foreign ones."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def room(module):
    return module.split(".")[1]


def test_the_rooms_are_there():
    for package, rooms in (("flowsim", FLOWSIM), ("full_model", FULL_MODEL)):
        there = {room(name) for name in FILES if name.startswith(f"{package}.")} - {"__main__"}
        assert there == rooms.keys()
        empty = [name for name in rooms if (ROOT / package / name).is_dir()
                 and len(list((ROOT / package / name).rglob("*.py"))) < 3]  # fmt: skip
        assert not empty


def breaks_the_order(module):
    """What a module imports and may not."""
    package, own = module.split(".")[:2]
    allowed = (FLOWSIM if package == "flowsim" else FULL_MODEL)[own].split()
    if module == "flowsim.drawing.any_record":  # completes a scan of the plane with its curves
        allowed.append("portraits")
    barred = {"drawing": "torch", "cli": "experiments"}.get(own, "matplotlib")
    for name in imports(FILES[module]):
        if name == package or name in ENTRIES:
            fine = name not in ENTRIES
        elif name.startswith(f"{package}."):
            fine = room(name) in (own, "public_names", *allowed)
        elif name.startswith("full_model"):
            fine = own in ABOVE_FULL_MODEL
        elif name.startswith("flowsim"):
            fine = room(name) in BELOW_FULL_MODEL.split()
        else:
            fine = name.split(".")[0] not in (barred, "experiments")
        if not fine:
            yield name


def test_imports_go_one_way():
    found = {module: [*breaks_the_order(module)] for module in FILES.keys() - ENTRIES}
    assert not {module: names for module, names in found.items() if names}


def model_classes():
    """Names of the classes of models that are defined in flowsim/models."""
    for path in (ROOT / "flowsim" / "models").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Model"):
                yield node.name


#: All but the base of those with L = ℓ(Δ), whom the reference in the gap is told of.
MODELS = frozenset(model_classes()) - {"GapModel"}
NAMES = frozenset(BUILT_IN)


def asks_which_model(tree):
    """Lines that ask which model there is: its class, its name, a coordinate, its loss of Δ."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flowsim.models"):
            asks = any(alias.name in MODELS for alias in node.names)
        elif isinstance(node, ast.Compare):
            holds = isinstance(node.ops[0], (ast.In, ast.NotIn))
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            words = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            of_model = any(word in left + right for word in ("model", "name", "choice"))
            asks = (of_model and bool(words & NAMES)) or (holds and right.endswith("coordinates"))
        else:
            asks = isinstance(node, ast.Attribute) and node.attr == "loss_of_gap"
        if asks:
            yield f"{node.lineno}: {ast.unparse(node)[:80]}"


#: The models themselves, and the theory of the rank-one manifold, where it is the subject.
KNOW_MODELS = ("flowsim.models", "full_model")
#: Rooms beside the core: the collection of chains and models, and what names it as a default.
BESIDE_THE_CORE = ("models", "chains", "explorer", "cli")


def test_the_core_stands_alone():
    beside = ("flowsim.models", "flowsim.chains", "full_model")
    core = [n for n in FILES if n.startswith("flowsim.") and room(n) not in BESIDE_THE_CORE]
    found = {n: [x for x in imports(FILES[n]) if x.startswith(beside)] for n in core
             if n not in ENTRIES}  # fmt: skip
    assert not {name: known for name, known in found.items() if known}


def test_nothing_asks_which_model_it_has():
    found = {}
    for name, path in FILES.items():
        if name not in ENTRIES and not name.startswith(KNOW_MODELS):
            lines = list(asks_which_model(parsed(path)))
            if lines:
                found[name] = lines
    assert not found


def test_asking_which_model_is_seen():
    for line in (
        "from flowsim.models.rank_one import RankOneModel",
        'if model.name == "states": pass',
        'if "u" in model.coordinates: pass',
        "model.loss_of_gap(gap)",
    ):
        assert list(asks_which_model(ast.parse(line))), line


def test_no_circle_of_files():
    graph = {name: imports(path) & FILES.keys() - ENTRIES for name, path in FILES.items()
             if name not in ENTRIES}  # fmt: skip
    settled: set[str] = set()
    while len(settled) < len(graph):
        ready = {name for name, needs in graph.items() if needs <= settled} - settled
        assert ready, f"circle among {sorted(graph.keys() - settled)}"
        settled |= ready


def private_names(path):
    """Names with an underscore: imported, asked of a module, or named for monkeypatch."""
    tree = ast.parse(path.read_text())
    ours, names = set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            names += [alias.name for alias in node.names]
            ours |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in ours:
                names.append(name)
            case ast.Call(func=ast.Attribute(attr="setattr"), args=given):
                quoted = [str(part.value) for part in given if isinstance(part, ast.Constant)]
                names += ".".join(quoted).split(".")
    return [name for name in names if name.startswith("_") and not name.startswith("__")]


def test_tests_use_public_names():
    found = {str(path): private_names(path) for path in (ROOT / "tests").rglob("*.py")}
    assert not {path: names for path, names in found.items() if names}
