# `make demo` and `make test` install everything into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt

# Container images set this; here every test process would recompile its modules.
unexport PYTHONDONTWRITEBYTECODE

OTHER_LANES := browser cluster faults gpu slurm workloads

.PHONY: demo test test-workloads test-faults test-cluster test-slurm test-docs test-browser test-runbooks test-pythons fuzz mutate bench lint type format docs picture clean system-packages

demo: $(VENV)/.demo-ready
	$(BIN)/seatrial run plans/tiny-lm-demo.yaml

# Folders whose tests all belong to another lane are left out: each of the three workers would import them.
test: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(OTHER_LANES:%=--ignore=tests/%) -m "not gpu and not faults and not browser and not runbooks and not cluster and not slurm and not docs and not workloads" tests

# The bundled trainers, on real ranks, beside their plain references.
test-workloads: $(VENV)/.test-ready
	$(BIN)/python -m pytest -n 3 --dist loadfile -m workloads tests/workloads

# Faults injected into real processes: the rows of docs/reliability.md.
test-faults: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 4 --maxschedchunk 1 -m faults tests/faults

# Many hosts on this machine, made of namespaces with sshd in each (docs/cluster.md): root only.
test-cluster: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 4 --dist loadfile -m cluster tests/cluster

# Jobs of a real Slurm that the tests start on namespace hosts: root only.
test-slurm: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder -m slurm tests/slurm

# Every command of README.md, CONTRIBUTING.md and docs/, run as a reader would: one page, one shell, one checkout.
test-docs: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 3 --dist worksteal -m docs tests/docs

# The page in a real headless Chromium, the system's own: drawn, read by key and on a phone, dark, printed, and safe against hostile input.
test-browser: $(VENV)/.test-ready system-packages
	$(BIN)/python -m pytest -n 3 --dist loadfile -m browser tests/browser

# Every block of the procedures (runbooks/, and the original documents beside the checkout if they are there), run on two CPU ranks.
test-runbooks: $(VENV)/.test-ready
	$(BIN)/python -m pytest -n 3 --maxschedchunk 1 -m runbooks tests/runbooks

# Arbitrary bytes for every parser, for a minute.
fuzz: $(VENV)/.test-ready
	$(BIN)/python -m tests.fuzz --seconds 60

# One mutant of each of 400 functions, for at most 75 minutes: tests/mutation/README.md.
mutate: $(VENV)/.test-ready
	$(BIN)/python tests/mutation

# The harness alone, without torch, on each Python from 3.11 to 3.13 that is installed here.
test-pythons:
	bash tests/pythons.sh

# Benchmarks of Seatrial with their bounds. The training-speed ones need a GPU.
BENCHMARKS := startup probe_overhead sampler_cost harness_gap eta_error analysis_scale page_scale prepare_speed compare_rates leak_rates \
  straggler_rates steady_state doctor_scale diagnosis stage1_speed sparse_lm_speed sft_speed endurance
bench: $(VENV)/.test-ready
	@failed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || failed="$$failed $$name"; done; \
	test -z "$$failed" || { echo "Failed or out of bounds:$$failed" >&2; exit 1; }

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type check of harness and runbooks; workloads are excluded (torch is mostly untyped).
type: $(VENV)/.test-ready
	$(BIN)/mypy

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages generated from the code; tests compare them with what this would write.
docs: $(VENV)/.test-ready
	$(BIN)/python docs/make_pages.py
	$(BIN)/python docs/make_diagram.py

# The README's pictures: the terminal report of the demo campaign, and its page as a browser shows it.
picture: demo $(VENV)/.test-ready system-packages
	$(BIN)/seatrial report outputs/tiny-lm-demo --svg docs/images/demo.svg
	$(BIN)/python docs/make_pictures.py outputs/tiny-lm-demo

system-packages:
	@bash tests/system-packages.sh

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing Seatrial and torch into $(VENV) (about 200 MB, once)"
	$(PIP) -e '.[workloads,charts]'
	@touch $@

$(VENV)/.test-ready: $(VENV)/.demo-ready
	@echo "installing what the tests need"
	$(PIP) -e '.[stage1,sft,dev]'
	@touch $@

clean:
	rm -rf $(VENV) outputs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
