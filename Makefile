# Every target sets up what it needs on first use: `make test` in a fresh clone is all it takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
THREADS ?= 1
# Of the storm: full or short; what is random in it; one case, or a pattern of names.
STORM ?= full
SEED ?= 1
CASE ?= *

.PHONY: help setup test test-ray test-browser test-clients test-readme test-storm test-starts test-power test-fuzz check docs train bench clean

help:
	@echo "make train   train, ten minutes     make test          run the tests"
	@echo "make check   lint and types         make test-ray      suites on Ray, on this machine"
	@echo "make bench   speed of everything    make test-browser  the pages in a real Chromium"
	@echo "make docs    the docs as a site     make test-clients  Gymnasium's RecordVideo"
	@echo "                                    make test-readme   the README's commands"
	@echo "                                    make test-storm    kills, damage, hostile files"
	@echo "                                    make test-starts   short runs under a checking allocator"
	@echo "                                    make test-power    a power cut at every instant of a run"
	@echo "                                    make test-fuzz     random files for every reader"

setup: $(READY)

# The stamp depends on what is installed, so a changed dependency installs again and nothing else does.
$(READY): pyproject.toml constraints.txt scripts/install_gl.sh scripts/apt_install.sh
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
		{ echo "Python 3.11 or 3.12 is needed; point PYTHON at it: make PYTHON=python3.12 …"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || sh scripts/apt_install.sh "Python's venv" python3-venv
	@sh scripts/install_gl.sh
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[video,gym,analysis,ray,dev]'
	@touch $(READY)

test: setup check
	OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest -n 2 --dist worksteal -m "not ray"

test-ray: setup
	OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest -m ray

# Apart from `test`, which needs no browser; pytest takes the files because they are named here.
test-browser: setup
	@command -v chromium >/dev/null || sh scripts/apt_install.sh "a browser" chromium
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest tests/browser/check_report.py tests/browser/check_watch.py

# Apart from `test`, as it takes minutes: the commands of the README, one after the other.
test-readme: setup
	OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest tests/check_readme.py

# Apart from `test`, as it has about 950 cases: STORM=short is a sample of it.
test-storm: setup
	$(if $(filter *,$(CASE)),OMP_NUM_THREADS=1 $(BIN)/pytest tests/storm/check_promises.py)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m storm --seed $(SEED) --case '$(CASE)' $(if $(filter short,$(STORM)),--short)

# Apart from `test`, as each start takes some seconds.
STARTS ?= 1000
test-starts: setup
	PYTHONPATH=tests $(BIN)/python -m storm.starts --starts $(STARTS)

# Apart from `test`: what it installs is old.
test-clients: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 -c constraints.txt -e '.[clients]'
	OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest tests/clients/check_record_video.py

# Apart from `test`, as it takes about half an hour: STATES=50 tries so many of each scenario.
STATES ?= 0
test-power: setup
	@command -v strace >/dev/null || sh scripts/apt_install.sh "strace" strace
	PYTHONPATH=tests $(BIN)/python tests/power_loss/check_power_loss.py --most $(STATES)

# MINUTES for each reader; `test` gives each of them some forty files.
MINUTES ?= 5
test-fuzz: setup
	SIBE_FUZZ_MINUTES=$(MINUTES) OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/fuzz/test_fuzz_readers.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A broken link is a warning, and strict fails on warnings; --quiet would hide them from it.
docs: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict
	@echo "open site/index.html"

train: setup
	@echo "SIBE with white noise behind the robot, about ten minutes on two cores; expect a return of 330 to 780 of 1000 at the end"
	@echo "(mean of the last five evaluations, the range of seeds 1 to 5; this one, seed 1: 592, with two threads 708)"
	$(BIN)/sibe train --preset cpu --task cartpole_swingup --background noise --method sibe --seed 1

bench: setup
	$(BIN)/sibe bench
	$(BIN)/python benchmarks/rendering.py

clean:
	rm -rf $(VENV)
