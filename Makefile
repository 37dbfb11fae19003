# Every target sets up what it needs in .venv; only Python >= 3.11, make and git must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-run
DOCS_STAMP := $(VENV)/.installed-docs
BENCH_STAMP := $(VENV)/.installed-bench
# packages are installed without bytecode: it is kept when written, or every process would compile what it imports
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo system test test-slow schedules soak explore lint format examples docs bench bench-ratings clean

install: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@

# only what the library itself needs
$(RUN_STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(DOCS_STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[docs]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev,bench]'
	@touch $@

# peers are installed one by one: one that does not build here is skipped, and the table says so
RATING_PEERS := myfm smurff scikit-surprise cornac libmf
RATING_STAMP := $(VENV)/.installed-bench-ratings

$(RATING_STAMP): $(STAMP)
	@for peer in $(RATING_PEERS); do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $$peer \
			|| echo "$$peer does not install here"; done
	@touch $@

demo: $(RUN_STAMP)
	@$(BIN)/dmfvi demo

# programs that some tests need: ip for network namespaces, chromium for reports; without them those tests are skipped and say why
system:
	@command -v ip >/dev/null && command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq >/dev/null 2>&1 \
		&& apt-get install -y -qq --no-install-recommends iproute2 chromium >/dev/null 2>&1; } || true

test: $(STAMP)
	@command -v ip >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get install -y -qq iproute2 >/dev/null 2>&1; } || true
	@# three workers on two cores: some tests wait for processes
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow"

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -n 2 -m slow

# twenty processes that come, go, are killed, frozen and cut off, for ten minutes: MINUTES=60 for an hour
MINUTES ?= 10
soak: $(STAMP)
	@$(BIN)/python tests/soak.py --minutes $(MINUTES)

# simulated schedules of the protocol: ten thousand, and a million
schedules: $(STAMP)
	@$(BIN)/python tests/simulation.py --schedules 10000 --jobs 2

explore: $(STAMP)
	@$(BIN)/python tests/simulation.py --schedules 1000000 --jobs 2

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# the Python blocks of the pages as programs of the package
examples:
	@$(PYTHON) docs/write_examples.py

# the documentation site, with its gallery run: docs/_build/index.html
docs: $(DOCS_STAMP)
	@$(BIN)/python -m sphinx -b html -q -W --keep-going docs docs/_build

bench: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/rounds.py
	@$(BIN)/python benchmarks/pooled_speed.py
	@$(BIN)/python benchmarks/models.py
	@$(BIN)/python benchmarks/many_nodes.py
	@$(BIN)/python benchmarks/engines.py
	@$(BIN)/python benchmarks/mpi_ratings.py

bench-ratings: $(RATING_STAMP)
	@$(BIN)/python benchmarks/ratings.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
