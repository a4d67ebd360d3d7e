"""The public names, for editors and type checkers."""

from full_model.comparison.choices import Comparison as Comparison
from full_model.comparison.compare import compare as compare
from full_model.comparison.compare import wilson as wilson
from full_model.comparison.outcome import classify as classify
from full_model.comparison.points import cloud_points as cloud_points
from full_model.comparison.points import grid_points as grid_points
from full_model.comparison.points import stored_points as stored_points
from full_model.lift.induction import InductionFit as InductionFit
from full_model.lift.induction import fit_induction as fit_induction
from full_model.lift.initial import initial_weights as initial_weights
from full_model.lift.initial import with_noise as with_noise
from full_model.lift.lifting import RankOnePoint as RankOnePoint
from full_model.lift.lifting import lift_canonical as lift_canonical
from full_model.lift.lifting import lift_held as lift_held
from full_model.lift.lifting import lift_rank_one as lift_rank_one
from full_model.lift.projection import Projection as Projection
from full_model.lift.projection import project as project
from full_model.lift.states import lift_states as lift_states
from full_model.model.architecture import Architecture as Architecture
from full_model.model.architecture import Weights as Weights
from full_model.model.population import PopulationLoss as PopulationLoss
from full_model.model.population import all_sequences as all_sequences
from full_model.model.prefix_tree import PrefixTreeLoss as PrefixTreeLoss
from full_model.model.sources import MarkovSource as MarkovSource
from full_model.model.sources import PriorSource as PriorSource
from full_model.model.transformer import cross_entropy as cross_entropy
from full_model.model.transformer import forward as forward
from full_model.theorems.unigram_trap import UnigramTrap as UnigramTrap
from full_model.theorems.unigram_trap import trap_matrix as trap_matrix
from full_model.theorems.unigram_trap import unigram_trap as unigram_trap
from full_model.theorems.verify import Claim as Claim
from full_model.theorems.verify import format_claims as format_claims
from full_model.theorems.verify import verify as verify
from full_model.training.probes import measure as measure
from full_model.training.probes import plateau as plateau
from full_model.training.run import train as train
from full_model.training.settings import Recipe as Recipe
from full_model.training.settings import RunSettings as RunSettings
from full_model.training.settings import papers_recipe as papers_recipe
from full_model.training.settings import starting_weights as starting_weights
from full_model.training.trainer import Trainer as Trainer

__all__: list[str]
