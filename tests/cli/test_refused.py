"""Command lines that are refused: exit code 2, one sentence with these words, no file made."""

import shlex
import time

import pytest
import torch
from command import assert_refused, run

#: What lies in the folder.
FILES = {
    "cut.nc": "\x89HDF\r\n\x1a\n" + "\0" * 40,
    "cut.safetensors": "nothing",
    "sum.csv": "0.5,0.6\n0.5,0.5\n",
    "ragged.csv": "0.5,0.5\n1\n",
    "foreign.csv": "\u0660.5,0.5\n0.5,0.5\n",
    "parted.csv": "1,0\n0,1\n",
    "two.csv": "0.5,0.5\n0.8,0.2\n",
    "other.csv": "e,v\n1,2\n",
    "broken.py": "undefined",
    "needs.py": """
import flowsim
class A(flowsim.Model):
    coordinates = ("x", "y")
    def __init__(self, k): self.k = k
""",
    "nothing.py": "import flowsim\nclass A(flowsim.Model):\n    coordinates = ('x', 'x')\n",
    "mine.py": """
import flowsim
class Well(flowsim.Model):
    coordinates = ("x", "y", "z")
    def __init__(self, mu: float = 0.5): self.mu = mu
    def loss(self, theta): return (theta**2).sum(-1) * self.mu
""",
}

CHAIN = "--p 0.5 --q 0.8"
WELL = "--model mine.py:Well"
STATES = "--model states --states 3 --p 0.8"
ATTENTION = f"{STATES} --attention --length 3"
LARGE_BATCH = "--model rank-one --optimizer adamw --steps 2 --length 1000000 --batch 1000000"
GRID, CLOUD = "--grid 4x4", "--cloud 4 --sigma 1"

#: By the beginning of the line: what follows, and words of the sentence. What the library refuses
#: in the same words is in ``full_model/test_what_is_refused`` and beside what it is about.
REFUSED = {
    "": [
        ("portrat", "portrat"),
        ("y" * 3000, "y"),
        ("info", "Missing argument 'RECORD'"),
        ("info missing.nc", "no such file: 'missing.nc'"),
        ("info cut.nc", "cut.nc"),
        ("info cut.safetensors", "cut.safetensors"),
    ],
    "portrait": [
        ("", "--p and --q are needed"),
        ("--p 0.5", "--p and --q are needed"),
        *((f"--q 0.8 --p={p}", "--p") for p in ("0", "nan", "half", "''", "x" * 3000)),
        ("--p 0,5 --q 0.8", "a probability with a decimal point, such as 0.5"),
        ("--p 50% --q 0.8", "a probability with a decimal point, such as 0.5"),
        ("--process even --p 0.3", "the process gives p and q: omit p"),
        ("--process even --model uniform", "has no hidden process"),
        ("--kernel k.csv", "--kernel goes with --emission here"),
        ("--from missing.nc", "no such file: 'missing.nc'"),
        ("--from cut.nc", "cut.nc"),
        (f"--from x.nc {CHAIN}", "--from"),
        ("--model states --p 0.5", "--states and --p are needed"),
        (f"{STATES} --q 0.5", "takes no q"),
        (f"{STATES} --hidden-per-state 0", "hidden-per-state"),
        (f"{STATES} --length 3", "no length without attention"),
        (f"{ATTENTION} --view 3d", "states model, as chosen, has no view in space"),
        (f"{STATES} --attention --length 300", "more than 50,000 different pasts"),
        ("--model induction --p 0.5", "omit p and q"),
        ("--model induction --length 99", "from 3 to 24, not 99"),
        ("--model induction --w-range 0:1", "plane is (alpha, beta), not (w)"),
        (f"{WELL} --set mu=abc", "mu must be a number, as 0.5 is, not 'abc'"),
        (f"{WELL} --window y=0:1,q=0:1", "has two axes of x, y, z, not y, q"),
        (f"{WELL} --window y=0:1,y=0:2", "each name once"),
        (f"{WELL} --window y=0:1,z=0:1 --fix y=0", "(y, z) takes no fixed y: only x"),
        (f"{WELL} --view 3d --window y=0:1,q=0:1", "the axes x, y, z, not q"),
        ("--model none.py:A", "'none.py' cannot be read"),
        ("--model mine.py:A-B", "of your own is FILE.py:Class"),
        ("--model no.such.module:A", "no.such.module cannot be imported"),
        ("--model broken.py:A", "'broken.py' failed: NameError"),
        ("--model needs.py:A", "needs.py:A needs k: give --set k="),
        ("--model nothing.py:A", "needs coordinates"),
    ],
    f"portrait {CHAIN}": [
        *((f"--resolution={n}", "--resolution") for n in ("1", "1000000000", "2.5")),
        *((f"--w-range={w}", "must be LOW:HIGH") for w in ("-1:inf", "3:-3", "nan:1", "1", "a:b")),
        *((f"--rtol={x}", "--rtol") for x in ("0", "inf", "0.1")),
        ("--out no/folder/x.png", "--out"),
        ("--out /proc/x.png", "/proc"),
        ("--colour red", "--colour"),
        (f"--{'x' * 3000}", "--"),
        ("--width 8cm", "must be a number, without a unit"),
        ("--model rank_one", "is rank-one meant?"),
        ("--states 3", "has no states; omit it"),
        ("--model uniform --length 1000000", "GiB"),
        ("--model uniform --length 2:8:3", "flowsim scan takes"),
        ("--a-range 0:1", "plane is (w, e), not (a)"),
        ("--model linear --energy", "--energy"),
        ("--learning-rate 0.1", "without --optimizer the flow is followed: omit --learning-rate"),
        ("--seed 5", "nothing but --optimizer is random here: omit --seed"),
        ("--optimizer adamw --d 4", "with --model rank-one alone: omit --d"),
        ("--optimizer adam --loss sampled", "a transformer is trained with --model"),
        (LARGE_BATCH, "--batch"),
    ],
    f"portrait {CHAIN} --model rank-one --length 4 --optimizer gd": [
        ("--d 0", "'--d'"),
        ("--batch 4", "--batch goes with --loss sampled"),
        ("--rtol 1e-8", "no flow is followed: omit --rtol"),
        ("--confirm 4", "no flow is followed: omit --confirm"),
        ("--energy", "--energy"),
        ("--points two.csv", "--points"),
    ],
    "scan": [
        (f"--p 0.1:0.9:1 --q 0.8 {GRID}", "--p"),
        ("--p 0.4:0.6:3 --q 0.8 --grid 6x6 --refine 2", "at one p and q"),
    ],
    f"scan {CHAIN}": [
        ("", "one of --grid, --points and --cloud"),
        (f"{GRID} {CLOUD}", "one of --grid, --points and --cloud"),
        ("--grid 4x", "--grid"),
        ("--grid \u0665x5", "--grid"),
        (f"--grid {'9' * 3000}", "--grid"),
        ("--grid 4x4x4", "2, not 3"),
        (f"{GRID} --model linear", "e, w, a: 3, not 2"),
        (f"{GRID} --w-range 3:-3", "must be LOW:HIGH"),
        (f"{GRID} --fix a=1", "no coordinate 'a'"),
        ("--grid 4 --fix e=1 --fix e=2", "twice"),
        ("--grid 4 --fix e=1 --e-range 0:1", "also fixed"),
        (f"{GRID} --range e=-1:1 --range e=0:1", "e has two ranges"),
        (f"{GRID} --seed 1", "--seed"),
        (f"{CLOUD} --w-range 0:1", "--grid"),
        ("--cloud 4", "--cloud needs --sigma"),
        ("--cloud 4 --sigma 0", "--sigma"),
        ("--cloud 4 --sigma 2:1:3", "--sigma"),
        ("--cloud 4 --sigma e=1", "must together be e, w"),
        ("--points other.csv", "e, w"),
        (f"--points {'z' * 3000}", "z"),
        (f"{GRID} --length 4", "no length"),
        (f"{GRID} --model uniform --fix a=0.5 --length 2:3:3", "no number twice"),
        (f"{GRID} --model uniform --fix a=0.5 --length 0", "from 1 to 1000000"),
        (f"{GRID} --jobs 2 --scheduler tcp://x:1", "--scheduler"),
        (f"{GRID} --out scan.csv", "--out"),
        (f"{GRID} --out /proc/scan.nc", "/proc"),
        (f"{GRID} {LARGE_BATCH}", "--batch"),
        ("--grid 6x6 --refine 0", "--refine"),
        ("--grid 6x6 --refine 21", "--refine"),
        ("--grid 6 --fix e=1 --refine 2", "--refine"),
        (f"{CLOUD} --refine 2", "--refine"),
    ],
    "gaussian": [
        ("", "--p and --q are needed"),
        (f"{STATES} --fix w=1", "every coordinate is drawn: omit --fix"),
    ],
    f"gaussian {CHAIN}": [
        *((f"--sigma={s}", "--sigma") for s in ("0:1:5", "1:1:5", "0.1:1", "nan:1:5", "a")),
        ("--sigma 0.1:2:3:4", "--sigma"),
        ("--sigma 1e-101:1:5", "sigma must increase from at least"),
        ("--samples 100000000", "--samples"),
        ("--samples 1000000 --sigma 0.1:1:1000", "at most"),
        (f"{LARGE_BATCH} --samples 2 --sigma 1", "--batch"),
    ],
    "compare": [
        (f"{ATTENTION}", "without attention: omit --attention"),
        (f"{STATES} --trainer sgd", "give --trainer gd or flow"),
        (f"{STATES} --q 0.5", "takes no q"),
        (f"{STATES} --noise 0.1 --length 20", "choose at most 10"),
        (f"{STATES} --d 1", "3 states need d of at least 2"),
        (f"{STATES} --d 3 --grid 2x3 --fix a=0.5", "--model uniform or rank-one"),
        ("--model states --p 0.5", "--states"),
    ],
    f"compare {CHAIN}": [
        ("--grid 20", "--grid"),
        ("--cloud 5", "--sigma"),
        ("--cloud 5 --sigma 1 --grid 2x2", "one of"),
        ("--cloud 100000000 --sigma 1", "at most"),
        ("--from none.nc", "--from redraws a record as it was computed: omit --p"),
        ("--fix a=0.5", "--fix"),
        ("--batch 5", "--trainer"),
        ("--require 2", "--require"),
        ("--model linear", "choose canonical, uniform, rank-one or states"),
        ("--model induction", "no full transformer"),
        ("--resume", "checkpoint"),
        ("--horizon 0", "--horizon"),
        ("--noise-on attention", "--noise"),
        ("--noise 0.02 --length 80", "sampled batches"),
        ("--length 999999999", "GiB"),
        ("--model rank-one --grid 2x1 --trainer sgd --batch 1000000000 --d 2 --length 2",
         "--batch"),
    ],
    "verify": [
        ("", "--p and --q"),
        (f"{CHAIN} --d 100000", "GiB"),
        (f"{CHAIN} --length 4096", "10^1233"),
    ],
    "chain": [
        ("--kernel sum.csv", "row 0 sums to 1.1"),
        ("--kernel ragged.csv", "one length"),
        ("--kernel foreign.csv", "not numbers with commas"),
        ("--kernel parted.csv", "reducible"),
        ("--kernel none.csv --p 0.5", "says the whole chain: omit --p"),
        ("--states 3", "needs --p"),
        ("--states 3 --p 0.5 --q 0.5", "omit --q"),
        ("--p 0.5", "--p and --q are needed"),
        ("--kernel two.csv --order 2", "of order 2 on 2 states has 4 rows, not 2"),
        ("--prior dirichlet --states 2 --p 0.5", "omit --p"),
        ("--prior jeffreys --states 2", "not 'jeffreys'"),
        ("--prior two.csv --states 3", "--states is 3"),
        ("--prior doubly-stochastic --states 2 --order 2", "omit --order 2"),
        ("--prior dirichlet:half --states 2", "a weight for every name"),
        ("--prior dirichlet --states 2000 --length 1000000", "10^1086419"),
        ("--process mess3:x", "NAME:NUMBER=VALUE"),
        ("--process mess3:x=2", "between 0 and 0.5"),
        ("--process even --p 0.5", "gives the whole process: omit --p"),
        ("--emission two.csv", "goes with --kernel"),
        ("--process even --length 4", "--length goes with --prior"),
    ],
    f"train {CHAIN}": [
        ("--learning-rate 0", "must be a positive number, not '0'"),
        ("--trainer lion", "--trainer"),
        ("--device tpu", "--device"),
        ("--init lifted", "--theta"),
        ("--init lifted --theta 1;2", "--theta"),
        ("--resume", "train.safetensors"),
        ("--out run.csv", "--out"),
        ("--checkpoint a.nc --out a.nc", "--checkpoint must end in .safetensors, not 'a.nc'"),
        ("--trainer flow --schedule cosine", "and no steps: omit --schedule"),
        ("--hidden 0 --init balanced", "hidden is 0"),
        ("--batch 1000000000000", "--batch"),
        ("--seeds 1000000 --d 512", "GiB"),
        ("--steps 1000000000000", "--steps"),
        ("--length 1000000000", "GiB"),
    ],
    "train --d 4 --length 5 --steps 4": [
        ("--prior dirichlet --states 2000 --order 10", "GiB"),
    ],
    "explore --no-browser": [
        ("--p 2", "--p"),
        ("--port 70000", "--port"),
        ("--model uniform --length 9999", "between 1 and 64"),
        ("--model states --states 5 --q 0.5", "no q"),
        ("--model states", "states"),
        ("--fix a=1", "no fixed a"),
        (ATTENTION, "the states model, as chosen, has v"),
        (f"{WELL} --window y=0:1,q=0:1", "has two axes of x, y, z, not y, q"),
    ],
}  # fmt: skip
#: No file has these names, and no command takes another suffix or a chain as near to 0 or 1.
TAKES_A_FILE = [
    f"portrait {CHAIN} --out", "portrait --from", f"gaussian {CHAIN} --out", "gaussian --from",
    f"scan {CHAIN} --grid 2x2 --out", f"scan {CHAIN} --points", f"compare {CHAIN} --out",
    f"compare {CHAIN} --points", "compare --from", f"train {CHAIN} --out",
    f"train {CHAIN} --checkpoint", "train --kernel", "train --prior", "chain --kernel",
    "chain --prior", "info",
]  # fmt: skip
LINES = [
    *((f"{start} {words}", said) for start, table in REFUSED.items() for words, said in table),
    *((f"{line} {name}", "") for line in TAKES_A_FILE for name in ("''", "/")),
    *((f"{command} {CHAIN} --out x.jpeg", ".svg") for command in ("portrait", "gaussian",
                                                                  "compare")),
    *((f"{command} --p {p} --q {q}", "strictly between 0 and 1, by at least 1e-12")
      for command in ("portrait", "scan", "gaussian", "compare", "train", "verify")
      for p, q in (("0.5", "5e-324"), ("0.9999999999999999", "0.5"))),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("refused")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8", newline="")
    return made


@pytest.mark.parametrize(("line", "said"), LINES, ids=lambda text: text[:60])
def test_it_is_refused_in_one_sentence(folder, line, said):
    began = time.process_time()
    done = run(*shlex.split(line), cwd=folder)
    assert_refused(done, said)
    assert len(done.stderr) < 500, "long values are not echoed whole"
    assert time.process_time() - began < 10, "torch and all are imported in less"
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == FILES.keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_gpu_that_is_not_there_is_told(folder):
    words = shlex.split(f"train {CHAIN} --device cuda")
    assert_refused(run(*words, cwd=folder), "this machine has no CUDA device")


@pytest.mark.parametrize(("line", "link"), [
    ("scan --grid 2x2 --out a.nc", "a.nc"), ("scan --grid 2x2 --out a.nc --resume", "a.nc"),
    ("portrait --out a.png", "a.png"), ("portrait --out a.png", "a.nc"),
    ("train --out a.nc", "a.safetensors"),
])  # fmt: skip
def test_a_link_that_leads_nowhere_is_there(tmp_path, line, link):
    (tmp_path / link).symlink_to("nowhere/x")
    assert_refused(run(*shlex.split(f"{line} {CHAIN}"), cwd=tmp_path), link)
    assert [path.name for path in tmp_path.iterdir()] == [link]
    assert (tmp_path / link).is_symlink()


def test_a_folder_is_not_overwritten(tmp_path):
    (tmp_path / "a.png").mkdir()
    words = shlex.split(f"portrait {CHAIN} --out a.png --overwrite")
    assert_refused(run(*words, cwd=tmp_path), "'a.png' is a folder")
