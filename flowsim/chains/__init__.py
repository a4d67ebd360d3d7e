"""Markov chains, hidden processes and priors, exactly."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DirichletPrior": "chains.priors",
        "DoublyStochasticPrior": "chains.priors",
        "FinitePrior": "chains.priors",
        "MixturePrior": "chains.priors",
        "OrderChain": "chains.higher_order",
        "PriorLosses": "chains.exact_losses",
        "SymmetricChain": "markov",
        "in_context": "chains.paths",
        "prior_losses": "chains.exact_losses",
        "sample_chain": "chains.paths",
        "sample_kernels": "chains.paths",
        "successor_counts": "chains.paths",
    },
)
