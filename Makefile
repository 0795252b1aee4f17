# Every target sets up its own .venv first; nothing is installed outside this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
# Twice the cores of a small machine: tests wait for kernels, leases, probes and watches as long as they compute.
WORKERS ?= 4
DELIVER := PYTHONPATH=.ci $(BIN)/python -m delivery

.DEFAULT_GOAL := help
.PHONY: help setup kernels demo demo-dialects flask test test-long test-jit test-nojit test-image published test-chart browser lock advisories docs test-docs e2e e2e-versions e2e-controllers e2e-failures e2e-mixed check sbom wheel chart bench bench-e2e quality forecast soak why storm attacks clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Exactly what is locked, by digest; then the project itself, whose build needs no network without isolation. A demo needs a
# tenth of it, which is not translated beforehand.
$(READY): pyproject.toml .ci/dev.lock | $(BIN)/python
	@echo "setting up $(VENV), all of it: 0.8 GB"
	@$(BIN)/python .ci/set_up.py .ci/dev.lock
	@$(INSTALL)
	@touch $@ $(DEMO)

$(DEMO): pyproject.toml .ci/demo.lock | $(BIN)/python
	@echo "setting up $(VENV), the part that a demo needs: 0.1 GB"
	@$(BIN)/python .ci/set_up.py .ci/demo.lock --no-compile
	@$(INSTALL)
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "hived needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
# The whole .venv has what a demo needs. A changed lock sets up either one again.
FOR_DEMO := $(if $(wildcard $(READY)),$(READY),$(DEMO))

setup: $(READY) ## make .venv with everything that is needed to run, test and check

# Takes a minute or two. A library of other sources is not used: kernels are then compiled at the first start, as without.
kernels: $(READY) ## link the kernels into a library, for this checkout: VARIANT=baseline
	@$(BIN)/python -m hived_extender.build $(if $(VARIANT),--variant $(VARIANT))

# A lab has a few nodes, where kernels are quick as plain Python; so nothing has to be compiled before the demo starts.
demo: $(FOR_DEMO) ## see the guarantees at work on an embedded cluster, no Kubernetes needed
	@NUMBA_DISABLE_JIT=1 $(BIN)/hived demo

demo-dialects: $(FOR_DEMO) ## see jobs of other schedulers and controllers get the same guarantees
	@NUMBA_DISABLE_JIT=1 $(BIN)/hived demo dialects

# Flask's own server has every path; the port is that of the configuration.
flask: $(FOR_DEMO) ## the whole endpoint under Flask's own server, with an embedded cluster: CONFIG=examples/...
	@NUMBA_DISABLE_JIT=1 HIVED_SERVE_OPTIONS="--embedded $(or $(CONFIG),examples/lab/03-opportunistic/hivedscheduler.yaml)" $(BIN)/flask --app hived_cli.wsgi run --port 9096

# Programs that tests start would else translate all sources anew, each by itself, where the environment forbids to keep that.
test: kernels ## all tests but long ones, in about five minutes on two cores
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Random histories, recorded decisions and storms at length, and whole scenarios: `make test` runs a sample of each.
test-long: kernels ## the long tests, in about ten minutes
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m long -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-docs: $(READY) ## the commands of all pages of the documentation, on embedded clusters
	HIVED_DOCS=1 $(BIN)/python -m pytest -m "" -s tests/docs/test_run.py

# Kernels are linked in `make test`, so whatever needs the compiler is skipped there.
test-jit: $(READY) ## the tests of compiling, with kernels compiled in a running process
	HIVED_KERNELS=compiled PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "" tests/core/kernels/compiling/test_compiled.py tests/core/kernels/compiling/test_ways.py tests/core/kernels/test_jit.py tests/core/kernels/test_blocks.py tests/extender/test_whole_changeover.py $$(grep -rlw callable_kernel tests/core --include='test_*.py')

test-nojit: $(READY) ## the tests of kernels, with kernels as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -m "" -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/core tests/extender/jobs/test_node_names.py

test-image: $(READY) ## the tests of what the image is made of, which compile all kernels once more
	HIVED_IMAGE=1 $(BIN)/python -m pytest -m "" tests/test_packaging.py

# Fetches Go modules at first, which takes Go and minutes. HIVED_PUBLISHED=sigs.k8s.io/jobset@v0.11.0 tries another version.
published: $(READY) ## the fields and words of others that hived reads, against their own definitions
	$(BIN)/python -m tests.e2e.tools --published
	$(BIN)/python -m pytest -m "" tests/extender/published

# Chromium comes with apt, axe-core with npm; screenshots go to out/browser.
browser: kernels ## every page in a real browser: widths, colours, keyboard, no scripts, axe, 16,384 nodes
	$(BIN)/python -m tests.browser.tools
	HIVED_BROWSER=1 $(BIN)/python -m pytest -m "" -s tests/browser

docs: $(READY) ## the site of the documentation, in out/docs: links and anchors are checked
	$(BIN)/python -m docs.site.build

# The programs are built into a cache at first, which takes Go and minutes. Tests wait more than they compute: two at once.
e2e: $(READY) ## the lab and all scenarios on a real control plane
	$(BIN)/python -m tests.e2e.tools
	HIVED_E2E=1 $(BIN)/python -m pytest -m "" -n 2 --dist loadfile tests/e2e --ignore tests/e2e/controllers --ignore tests/e2e/failures --ignore tests/e2e/mixed/test_mixed.py

e2e-versions: $(READY) ## the same on the other versions of Kubernetes
	HIVED_E2E_VERSIONS=v1.33,v1.37 $(MAKE) e2e

e2e-controllers: $(READY) ## jobs of real controllers
	$(BIN)/python -m tests.e2e.tools --controllers
	HIVED_E2E=1 $(BIN)/python -m pytest -m "" -n 2 --dist loadfile tests/e2e/controllers

# Builds Helm at first, which takes Go and minutes.
test-chart: $(READY) ## the Helm chart with Helm itself: lint, OCI layout, the objects of config/deploy in every variant
	$(BIN)/python -m tests.e2e.tools --helm
	HIVED_CHART=1 $(BIN)/python -m pytest -m "" tests/delivery/test_helm.py

# Takes hours.
e2e-failures: $(READY) ## every failure with 20 seeds on a real control plane
	$(BIN)/python -m tests.e2e.tools
	HIVED_E2E=1 HIVED_E2E_SEEDS=20 HIVED_E2E_OUTAGE_S=60 $(BIN)/python -m pytest -m "" tests/e2e/failures

e2e-mixed: $(READY) ## a random cluster for 20 minutes: SEED=1 MINUTES=20 VERSION=v1.36
	HIVED_E2E_VERSIONS=$(or $(VERSION),v1.36) $(BIN)/python -m tests.e2e.tools
	$(BIN)/python -m tests.e2e.mixed --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1) --version $(or $(VERSION),v1.36)

check: $(READY) ## lint, format, types, import layers and dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict docs/site
	$(BIN)/python -m pytest tests/test_architecture.py
	$(DELIVER) check

# Pins and digests stay where they may: each lock is made from the last one, the smaller ones from the whole.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: \
	--generate-hashes --emit-build-options --no-annotate --custom-compile-command "make lock"
lock: $(READY) ## remake .ci/*.lock from pyproject.toml: UPGRADE=1
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --extra dev --group build --output-file .ci/dev.lock
	cp .ci/dev.lock .ci/requirements.lock
	$(LOCK) pyproject.toml --output-file .ci/requirements.lock
	cp .ci/dev.lock .ci/demo.lock
	$(LOCK) --group demo --output-file .ci/demo.lock
	cp .ci/dev.lock .ci/build.lock
	$(LOCK) --group build --output-file .ci/build.lock

advisories: $(READY) ## fetch the known vulnerabilities of what is locked, for `make check`
	$(DELIVER) advisories

sbom: $(READY) ## remake the bill of materials from .ci/requirements.lock and what is installed
	$(DELIVER) sbom

wheel: $(READY) ## build the wheel into dist/, with its bill of materials and licences
	$(DELIVER) wheel dist

chart: $(READY) ## package the Helm chart into dist/, also as an OCI layout
	$(DELIVER) chart dist

# An installation has its sources translated: without that each process that is measured would do so, where the environment
# forbids to keep it.
bench: $(READY) ## how fast it is, from 128 to 16,384 nodes, and which targets are missed
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.benchmarks --cold

# Ten minutes. Exit code 1: a figure is more than 5 % larger. Exit code 3: the programs of `make e2e` are not there.
bench-e2e: kernels ## pods, queued jobs, why, push and start beside another checkout: AGAINST=../other ROUNDS=7 ONLY=embedded
	$(BIN)/python -m tests.benchmarks.end_to_end $(if $(AGAINST),--against $(AGAINST)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY))

# Some minutes on an idle machine. Exit code 1: rules 2 miss a bound.
quality: kernels ## how good the decisions are, by both rules: ONLY=needless,locality RULES=2 JOBS=1 TRACE=week.jsonl
	@$(BIN)/python -m tests.quality $(if $(JOBS),--jobs $(JOBS)) $(if $(ONLY),--only $(ONLY)) $(if $(RULES),--rules $(RULES)) $(if $(TRACE),--trace $(TRACE))

# Takes half an hour or more. Exit code 1: a bound is missed.
forecast: kernels ## how well forecasts of starts hold, on traces and random jobs: ONLY=N,philly-november JOBS=1
	@$(BIN)/python -m tests.forecasts $(if $(JOBS),--jobs $(JOBS)) $(if $(ONLY),--only $(ONLY))

soak: $(READY) ## 200,000 random operations, with every invariant checked after each, and whatever else is random, at length
	$(BIN)/python -m tests.property.soak --ops 200000
	$(BIN)/python -m tests.property.false_waits --states 100000
	$(BIN)/python -m tests.property.queued --events 100000
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m tests.extender.machine.judged_rooms --states 10000
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m tests.extender.insight.defrag.judged_moves --states 3000
	HIVED_EDITS=20000 $(BIN)/python -m pytest -m "" tests/config/text/test_edits.py
	HIVED_SYNCS=3000 $(BIN)/python -m pytest -m "" tests/config/generating/test_sync.py
	HIVED_EXAMPLES=5 $(BIN)/python -m pytest -m "" tests/extender/insight/defrag
	HIVED_CAPACITIES=1 $(BIN)/python -m pytest -m "" tests/core/cells/test_journal.py
	HIVED_EXAMPLES=10 $(BIN)/python -m pytest -m "" $$(grep -rl 'examples(' tests --include='test_*.py')

# Takes a quarter of an hour.
why: $(READY) ## explanations of 20,000 random waits, judged by carrying out what they say: STATES=20000 SEED=0
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m tests.property.explained --states $(or $(STATES),20000) --seed $(or $(SEED),0)

storm: $(READY) ## 400 random pushes of configurations under load, and 120 services killed amid one
	$(BIN)/python -m tests.storm.storm --valid 200 --invalid 200 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.storm.crashes --each 2 --random 100 $(if $(SEED),--seed $(SEED))

# Takes half an hour. Exit code 3: the programs of `make e2e` are not there, and the tenants' attack did not run.
attacks: $(READY) ## attacks on a running service: ONLY=bombs,slow SEED=1
	$(BIN)/python -m tests.attacks $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

clean: ## remove .venv and everything that was generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
