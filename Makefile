# Every number and figure of docs/results.md, from nothing, on a CPU: hours on two cores, most of
# them in agreement. Each target can be made alone, and says how long it took.
#
#   make reproduce PYTHON=.venv/bin/python

PYTHON ?= python
FLOW = portraits attention_portraits boundary gaussian states
PAPERS = am_fig1_depth am_fig3_tying am_fig4_square am_appendix_d \
         lg_fig1_basins lg_fig2_attention lg_losses lg_rank_one_energy lg_initialization
TRAINED = headline $(PAPERS) agreement agreement_adamw noisy_misses optimizer_basins \
          chain_square trap_map ladder balanced_start adamw_escape width_of_truth

timed = @began=$$(date +%s); $(PYTHON) $(1) && echo "$@: $$(($$(date +%s) - began)) s"

.PHONY: reproduce results notebooks $(FLOW) $(TRAINED)
.NOTPARALLEL:

reproduce: $(FLOW) $(TRAINED) notebooks results

$(FLOW):
	$(call timed,experiments/$@.py)

$(TRAINED):
	$(call timed,experiments/$@.py --overwrite)

notebooks:
	$(call timed,experiments/notebooks/execute.py)

results:  # the tables of docs/results.md, from the numbers in figures/*.json
	$(call timed,experiments/results_page.py)
