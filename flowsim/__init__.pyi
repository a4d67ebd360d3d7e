"""The public names, for editors and type checkers."""

from typing import Any

from flowsim import bifurcation as bifurcation
from flowsim import boundary as boundary
from flowsim import chains as chains
from flowsim import drawing as drawing
from flowsim import flow as flow
from flowsim import landscape as landscape
from flowsim import models as models
from flowsim import noise as noise
from flowsim import portraits as portraits
from flowsim import records as records
from flowsim import reduction as reduction
from flowsim import reference as reference
from flowsim import training as training
from flowsim.bifurcation.record import continuation as continuation
from flowsim.boundary.distance import edge_distance as edge_distance
from flowsim.boundary.refine import refine_boundary as refine_boundary
from flowsim.chain import BinaryChain as BinaryChain
from flowsim.drawing.any_record import draw as draw
from flowsim.errors import InputError as InputError
from flowsim.flow.orbits import find_limits as find_limits
from flowsim.flow.orbits import hitting_times as hitting_times
from flowsim.flow.orbits import trajectories as trajectories
from flowsim.interface import Model as Model
from flowsim.interface import Plane as Plane
from flowsim.labels import Label as Label
from flowsim.labels import Rule as Rule
from flowsim.labels import Status as Status
from flowsim.markov import MarkovChain as MarkovChain
from flowsim.own import from_loss as from_loss
from flowsim.portraits.in_plane import portrait as portrait
from flowsim.portraits.summaries import summarize as summarize
from flowsim.records.netcdf import read_record as read_record
from flowsim.records.netcdf import write_record as write_record
from flowsim.reduction.found import reduce as reduce
from flowsim.scan.gaussian import gaussian as gaussian
from flowsim.scan.starts import Cloud as Cloud
from flowsim.scan.starts import Grid as Grid
from flowsim.scan.starts import Points as Points
from flowsim.spec import ModelSpec as ModelSpec
from flowsim.spec import model as model
from flowsim.training.descent import descend as descend
from flowsim.training.optimizer_choice import OptimizerChoice as OptimizerChoice

__version__: str
scan: Any
__all__: list[str]
