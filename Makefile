# `make demo` and `make test` need Python >= 3.11 and nothing else; they set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICKSTART := notebooks/00-quickstart.ipynb

.PHONY: help demo test test-torch test-trainers test-lightning test-deepspeed test-tensorflow test-megatron test-horovod test-ray test-hosts test-neighbours test-exercises lab lint format bench fuzz soak notebooks docs chromium extension clean

help:
	@echo "make demo    run the quick start, print its findings, write demo.html"
	@echo "make test    lint, type-check and test"
	@echo "make test-torch TORCH=2.12.1   test what touches torch with another version of it"
	@echo "make test-trainers   test programs of Accelerate, Trainer and Lightning (also test-lightning)"
	@echo "make test-deepspeed   test programs of DeepSpeed"
	@echo "make test-tensorflow   test programs of TensorFlow and Keras"
	@echo "make test-megatron   test programs of Megatron-core"
	@echo "make test-horovod   build Horovod (about 15 minutes), and test programs of it"
	@echo "make test-ray   test programs of Ray Train"
	@echo "make test-hosts   test sessions on several hosts made of network namespaces (needs root)"
	@echo "make test-neighbours   test JupyterLab with other extensions beside ours"
	@echo "make test-exercises   grade all wrong and right repairs of the exercises"
	@echo "make lab     open the quick start in JupyterLab"
	@echo "make bench   measure the figures of the README"
	@echo "make fuzz    change saved runs, dumps, recorded folders and logs at random, and read them"
	@echo "make soak    use one notebook for long, and see whether anything grows"
	@echo "make notebooks   execute the notebooks in place, and measure them"
	@echo "make docs    build the guide in docs/_build/html"
	@echo "make extension   rebuild the JupyterLab extension (needs Node; its result is committed)"
	@echo "make clean   remove what the others made"

# The stamp is renewed whenever the packages to install change.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ddt-notebook needs Python 3.11 or later, but $(PYTHON) is older: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,test]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/ddt-notebook demo

# Ranks often wait, so four files at a time keep two processors busy. On a busier machine, a rank
# that delays the others is harder to detect, and its tests may fail.
# A test module shares its sessions, so a file stays together, and so do all tests in the browser.
# tests/conftest.py orders the files: those in the browser and those with ranks come first.
# Tests that ran twice (tests/conftest.py) are listed with a traceback; more than ten fail the run.
PYTEST_OPTIONS := -n 4 --dist loadfile --no-loadscope-reorder --nbval-lax --nbval-cell-timeout=240 --nbval-current-env \
	--max-suite-reruns=10 --rerun-show-tracebacks

# One exercise is enough: only %load_ext runs in them, and a unit test compares each with its source.
# The one about Megatron-core runs in an environment of its own.
OF_MEGATRON := notebooks/e-today/E.15-megatron.ipynb
OF_TORCH := $(filter-out $(OF_MEGATRON),$(wildcard notebooks/*.ipynb notebooks/[a-e]-*/*.ipynb))
# tests/notebooks/test_quickstart.py and a browser run the quick start.
NOTEBOOKS := $(filter-out $(QUICKSTART),$(OF_TORCH)) notebooks/exercises/01-more-than-two.ipynb

# An image may set it; then each process compiles the project and the tests anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.installed
	$(MAKE) -j 2 lint chromium
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) tests $(NOTEBOOKS)

# Everything that runs in ranks, with a version of torch other than the pinned one, in an environment
# of its own. It leaves out the tests of conclusions from the same observations (cards, fixtures,
# exercises, corrections) and those of the notebook's process.
TORCH_VENV = .venv-torch-$(TORCH)
TORCH_TESTS := tests/unit/rank $(addprefix tests/multiprocess/test_, torch_private.py lifecycle.py cells.py \
	faults.py healthy.py setup.py training_healthy.py uneven_steps.py timeline.py memory.py partition.py \
	placement.py parity.py simulated.py silent_data.py checkpoints.py)

test-torch:
	@test -n "$(TORCH)" || { echo "which version of torch? make test-torch TORCH=2.12.1"; exit 2; }
	test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/python -m pip install --quiet --constraint $(TORCH_VENV)/constraints.txt --editable '.[demo]' \
		pytest pytest-rerunfailures pytest-timeout pytest-xdist
	$(TORCH_VENV)/bin/python -c 'import torch; print("torch", torch.__version__)'
	$(TORCH_VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-suite-reruns=10 --rerun-show-tracebacks \
		$(TORCH_TESTS)

# Programs of Accelerate, transformers' Trainer and Lightning, in an environment of their own.
TRAINERS_VENV = .venv-trainers
test-trainers:
	test -x $(TRAINERS_VENV)/bin/python || $(PYTHON) -m venv $(TRAINERS_VENV)
	$(TRAINERS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,accelerate,lightning,transformers]' \
		tensorboard pytest pytest-rerunfailures pytest-timeout
	$(TRAINERS_VENV)/bin/python -m pytest tests/trainers tests/multiprocess/test_launchers.py
	$(TRAINERS_VENV)/bin/python -m pytest tests/multiprocess/test_cards.py -k 'trainer or accelerate'

test-lightning: test-trainers

# DeepSpeed builds its operations with ninja when a program uses them.
DEEPSPEED_VENV = .venv-deepspeed
test-deepspeed:
	test -x $(DEEPSPEED_VENV)/bin/python || $(PYTHON) -m venv $(DEEPSPEED_VENV)
	$(DEEPSPEED_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,deepspeed]' \
		setuptools ninja pytest pytest-rerunfailures pytest-timeout
	$(DEEPSPEED_VENV)/bin/python -m pytest tests/deepspeed tests/multiprocess/test_launchers.py
	$(DEEPSPEED_VENV)/bin/python -m pytest tests/multiprocess/test_cards.py -k deepspeed

# 1.5 GB are installed. No test shares its ranks with torch's own tests.
TENSORFLOW_VENV = .venv-tensorflow
test-tensorflow:
	test -x $(TENSORFLOW_VENV)/bin/python || $(PYTHON) -m venv $(TENSORFLOW_VENV)
	$(TENSORFLOW_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,tensorflow]' \
		pytest pytest-rerunfailures pytest-timeout
	$(TENSORFLOW_VENV)/bin/python -m pytest tests/tensorflow tests/multiprocess/test_cards.py -k tensorflow

# Its GPUs are simulated. The wheel has 10 MB and needs nothing that torch does not.
MEGATRON_VENV = .venv-megatron
test-megatron:
	test -x $(MEGATRON_VENV)/bin/python || $(PYTHON) -m venv $(MEGATRON_VENV)
	$(MEGATRON_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,megatron]' \
		nbval pytest pytest-rerunfailures pytest-timeout
	$(MEGATRON_VENV)/bin/python -m pytest --nbval-lax --nbval-cell-timeout=240 --nbval-current-env \
		tests/megatron tests/multiprocess/test_cards.py $(OF_MEGATRON) -k megatron

# Its last release, of June 2023, is built here, which needs g++ and cmake.
HOROVOD_VENV = .venv-horovod
test-horovod: $(HOROVOD_VENV)/.built
	$(HOROVOD_VENV)/bin/python -m pytest tests/horovod tests/multiprocess/test_cards.py -k horovod

$(HOROVOD_VENV)/.built: tools/build_horovod.py constraints.txt
	test -x $(HOROVOD_VENV)/bin/python || $(PYTHON) -m venv $(HOROVOD_VENV)
	$(HOROVOD_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]' \
		pytest pytest-rerunfailures pytest-timeout
	$(HOROVOD_VENV)/bin/python tools/build_horovod.py
	@touch $@

# Each of its jobs starts a Ray of its own.
RAY_VENV = .venv-ray
test-ray:
	test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,ray-train]' \
		pytest pytest-rerunfailures pytest-timeout
	$(RAY_VENV)/bin/python -m pytest tests/ray

# Hosts are network namespaces: needs root. Debian's packages are installed where they are missing.
HOST_PACKAGES := iproute2 nftables faketime openssh-server openssh-client slurm-wlm
test-hosts: $(VENV)/.installed
	@test "$$(id -u)" = 0 || echo "not root: what needs network namespaces is skipped"
	@(for tool in ip nft faketime /usr/sbin/sshd srun; do command -v $$tool >/dev/null || exit 1; done) \
	|| test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	|| { apt-get update -q && apt-get install -yq --no-install-recommends $(HOST_PACKAGES); }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	DDT_TEST_HOSTS=1 $(BIN)/python -m pytest -rs tests/multiprocess/test_joined_hosts.py tests/multiprocess/test_host_cards.py \
		tests/multiprocess/test_faults_over_hosts.py tests/multiprocess/test_slurm.py tests/multiprocess/test_ray.py

# JupyterLab with other extensions beside ours.
test-neighbours: $(VENV)/neighbours
	$(MAKE) chromium
	$(BIN)/python -m pytest tests/browser/test_neighbours.py

$(VENV)/neighbours: tests/browser/neighbours.txt $(VENV)/.installed
	rm -rf $@
	$(BIN)/python -m pip install --quiet --no-deps --target $@ --requirement $<
	@touch $@

# The tests have one wrong repair of an exercise for each behaviour that fails; here are all.
test-exercises: $(VENV)/.installed
	DDT_TEST_EXERCISES=1 $(BIN)/python -m pytest tests/multiprocess/test_exercises.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lab: $(VENV)/.installed
	$(BIN)/jupyter lab $(QUICKSTART)

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

# In about 20 minutes. SEED=2000 makes other changes.
CHANGES ?= 2000
SEED ?= 0
fuzz: $(VENV)/.installed
	DDT_CHANGES=$(CHANGES) DDT_SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/unit/test_changed_files.py tests/multiprocess/test_changed_folders.py

# SHARE=0.1 runs a tenth of it.
SHARE ?= 1
soak: $(VENV)/.installed
	$(BIN)/python -m benchmarks.soak --share $(SHARE)

# Exercises stay as students get them.
notebooks: $(VENV)/.installed
	$(BIN)/python tools/measure_server.py --table docs/figures.json
	$(BIN)/python tools/execute_notebooks.py --table docs/figures.json $(OF_TORCH)
	@echo "$(OF_MEGATRON) needs the environment of make test-megatron"

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# For the tests in a real browser; without chromium they are skipped.
chromium:
	@command -v chromium >/dev/null \
	|| { test "$$(id -u)" = 0 && apt-get update -q && apt-get install -yq --no-install-recommends chromium; } \
	|| echo "no chromium: the tests in a browser are skipped"

extension: $(VENV)/.installed
	$(BIN)/python tools/extension_menu.py
	cd extension && npm ci --no-audit --no-fund
	rm -rf ddt_notebook/labextension
	cd extension && npm run build
	$(BIN)/python -m pytest tests/unit/test_labextension.py tests/unit/test_labextension_build.py

clean:
	rm -rf $(VENV) .venv-torch-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist demo.html docs/_build docs/messages docs/notebooks docs/symptoms docs/views_*.md extension/lib extension/node_modules
	find ddt_notebook tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
