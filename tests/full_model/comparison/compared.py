"""The chain, starts and command that several files compare."""

import torch

from flowsim import BinaryChain

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)
#: Two that learn, one trapped, one that the canonical model gets wrong at N = 1024.
POINTS = torch.tensor([[0.9, -1.1], [-0.6, -0.9], [0.5, 0.4], [1.5, -0.1]], dtype=F64)
SMALL = ["compare", "--p", "0.5", "--q", "0.8", "--grid", "2x3", "--d", "2", "--length", "3"]
