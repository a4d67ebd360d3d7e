# Every number and figure of docs/results, from nothing, on a CPU: hours on two cores, most of
# them in agreement. Each target can be made alone, and says how long it took.
#
#   make reproduce PYTHON=.venv/bin/python

PYTHON ?= python
SITE ?= docs/_build/html
FLOW = portraits reduce_networks threshold
PAPERS = am_fig1_depth am_fig3_tying am_fig4_square am_appendix_d \
         lg_fig1_basins lg_fig2_attention lg_losses lg_rank_one_energy lg_initialization
TRAINED = $(PAPERS) agreement agreement_sampled \
          trap_map ladder balanced_start adamw_escape width_of_truth first_weights \
          states_agreement states_threshold states_ends memory poles selective critical_noise

timed = @began=$$(date +%s); $(PYTHON) $(1) && echo "$@: $$(($$(date +%s) - began)) s"

.PHONY: cuda docs gallery howto mutants versions reproduce results notebooks $(FLOW) $(TRAINED)
.NOTPARALLEL:

reproduce: $(FLOW) $(TRAINED) howto notebooks results

$(FLOW) $(TRAINED):
	$(call timed,experiments/$@.py --overwrite)

notebooks:
	$(call timed,docs/learn/execute.py)

howto:  # the pictures of the how-to pages, by the pages' own commands
	$(call timed,experiments/howto.py)

cuda:  # what a GPU does beside the CPU: tests, times, labels, AdamW at the papers' sizes
	$(call timed,experiments/cuda.py)

docs:  # the site, with the extra "docs"; every warning and every dead link ends the build
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs $(SITE)

results:  # the tables of docs/results, from the numbers in figures/*.json
	$(call timed,experiments/results_page.py)

mutants:  # small faults put into the modules that compute, and whether the tests notice: tests/MUTANTS.md
	$(PYTHON) tests/mutants.py

versions:  # the numerical tests with the lowest libraries allowed, on every Python here: tests/VERSIONS.md
	$(PYTHON) tests/versions.py

gallery:  # the pictures of the gallery, and its page
	$(call timed,docs/gallery.py)
