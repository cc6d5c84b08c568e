# Everything a developer does here. `make help` lists it; each target sets up what it needs.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
# what `make up` and `make test` may be given: make up ARGS="--port 8080", make test ARGS="-k view"
ARGS ?=
# how many processes run tests: more than two cores, since half of the time tests wait (5 in `make test`, else 3, where each
# starts real servers of its own: about 1 GB); JOBS=0 runs them in this one
JOBS ?=
# when make began, so that the time that `make test` prints has the set-up in it
export TOOLCRIB_BEGAN := $(or $(TOOLCRIB_BEGAN),$(shell date +%s))
# Files in their own order: pytest-xdist would begin with those of many tests, and end with one process in a long test of
# real servers while the others have nothing to do. In their own order the many short ones of tests/unit come last.
DIST := --dist loadfile --no-loadscope-reorder
# Files with tests of a mark: to import all others takes every process up to 9 s of processor time.
MARKED = $(shell grep -rlE 'pytest\.mark\.$(1)\b' --include='test_*.py' tests/$(2) | sort)
# what `make image` may be given
TAG ?= toolcrib:dev
BASE_IMAGE ?=
BUILDER_IMAGE ?=
# what `make bench-search` measures: a folder with one folder a set; where the figures go as JSON; how many requests a set
DATA ?= $(or $(wildcard ../shared/retrieval/data),bench/search/subset)
OUT ?=
LIMIT ?=
# embedded, weaviate, or auto: Weaviate too where its program is here
STORES ?= auto
SYSTEM_PYTHON := $(or $(PYTHON),$(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python,$(shell command -v $(p) 2>/dev/null))))
# a process that may not keep what it compiles compiles a thousand modules, 2 s of processor time, each time
unexport PYTHONDONTWRITEBYTECODE
SOURCES := core operator registry_api agent_runner cli client tests bench examples requirements docs helm
PEERS := tests/support/mcp_peers
FRAMEWORKS := tests/support/frameworks/locks
LOCK := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-package toolcrib-client

.PHONY: help env up test test-real test-long check fmt generate chart-snapshots lock build-tools cluster-test fresh-machine-test cluster-demo proof attack bench tails bench-context bench-modes bench-search bench-search-recall bench-search-scale bench-search-sizes search-gate search-faults revocation hidden-timing large-namespaces bulkheads mcp-conformance mcp-peers frameworks mcp-servers mcp-replicas mcp-bench openapi-documents growth health mcp-tokens image wheel wheel-smoke client-size ci clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## Make the virtual environment from the locked requirements (instant when it is there)
	@test -n "$(SYSTEM_PYTHON)" || { echo "No Python found. Toolcrib needs Python 3.11, 3.12 or 3.13." >&2; exit 1; }
	@$(if $(PYTHON),PYTHON="$(PYTHON)") "$(SYSTEM_PYTHON)" requirements/environment.py $(VENV)

up: env ## Start Toolcrib on this machine with the example tools and agents; Ctrl-C stops it
	@exec $(BIN)/toolcrib up --manifests examples/heist --manifests examples/catalog $(ARGS)

test: env ## Run the tests that need nothing but Python: every guarantee that has no real server in it, in minutes
	$(BIN)/python -m pytest --suite quick -n $(or $(JOBS),5) $(DIST) $(ARGS)

test-real: env build-tools ## Run all others: on a real API server, Weaviate, Dex, PostgreSQL, Redis, Prometheus and helm; tables and properties whole
	$(BIN)/python -m pytest --suite real -n $(or $(JOBS),3) $(DIST) $(ARGS)

check: env ## Lint, format, types, import contracts, the words of pages and strings, and generated files that are up to date
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy tests/support
	$(BIN)/mypy -p dashboards
	$(BIN)/lint-imports
	$(BIN)/python tests/support/ci/needs.py
	$(BIN)/python docs/words.py
	@$(MAKE) --no-print-directory generate
	@git diff --exit-code -- crds docs/reference docs/concepts docs/pictures helm || { echo "Generated files were out of date; they are new now: commit them." >&2; exit 1; }

fmt: env ## Format and fix what can be fixed
	$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	$(BIN)/ruff format $(SOURCES)

generate: env ## Write what is made from the code: crds/ (and in the chart), docs/reference/, tables in docs/concepts/ and the chart's README, docs/pictures/
	@$(BIN)/toolcrib crds --write crds
	@$(BIN)/toolcrib crds --write helm/toolcrib/files/crds
	@$(BIN)/python docs/generate.py
	@$(BIN)/python helm/dashboards/generate.py
	@$(BIN)/python helm/readme.py
	@$(BIN)/python docs/pictures/architecture.py
	@$(BIN)/python docs/pictures/tour.py

chart-snapshots: env build-tools ## Write what the chart renders to tests/chart/snapshots, for reading the diff
	@TOOLCRIB_UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest -q tests/chart/test_snapshots.py

lock: env ## Resolve the dependencies again and write requirements/*.txt
	$(BIN)/uv $(LOCK) pyproject.toml --extra otel --extra postgres -o requirements/runtime.txt
	$(BIN)/uv $(LOCK) pyproject.toml --extra otel --extra postgres --group dev -o requirements/dev.txt
	$(BIN)/uv $(LOCK) --group image -c requirements/dev.txt -o requirements/build.txt
	$(BIN)/uv $(LOCK) requirements/go.in -o requirements/go.txt
	for lock in $(FRAMEWORKS)/*.in; do $(BIN)/uv $(LOCK) $$lock -o $${lock%.in}.txt || exit 1; done
	$(BIN)/uv $(LOCK) bench/small_model/requirements.in -o bench/small_model/requirements.txt
	for name in current earlier; do $(BIN)/uv $(LOCK) $(PEERS)/python/$$name.in -o $(PEERS)/python/$$name.txt || exit 1; done
	@$(BIN)/python requirements/environment.py $(VENV)

build-tools: env ## Find or build (once, with Go, about 20 minutes) the real servers that tests run against
	@$(BIN)/python tests/support/realparts/build.py

test-long: env build-tools ## Run the tests that keep real servers busy for long: upgrades, dashboards and rules in a real Prometheus
	TOOLCRIB_REQUIRE_REAL=1 $(BIN)/python -m pytest -n $(or $(JOBS),3) $(DIST) -m "long and not node" $(call MARKED,long) $(ARGS)

cluster-demo: env build-tools ## The tour of the cluster, against a real API server and a real Weaviate on loopback
	@exec $(BIN)/python examples/cluster/demo.py $(ARGS)

cluster-test: env ## The image in a real docker, the chart on a real node: install, tour, changes under load, failures; needs root on Linux
	@$(BIN)/python tests/support/realparts/able.py
	@$(BIN)/python tests/support/realparts/debian.py --node
	@$(BIN)/python tests/support/realparts/build.py --node
	@$(BIN)/python tests/support/realparts/images.py pause weaviate toolcrib
	TOOLCRIB_REQUIRE_REAL=1 $(BIN)/python -m pytest -m node -v $(call MARKED,node,component) tests/cluster/node $(ARGS)

fresh-machine-test: env build-tools ## Every step of the README on a new Debian of its own (namespaces, no docker); needs root on Linux
	$(BIN)/python -m pytest -m fresh -v -s tests/fresh $(ARGS)

proof: env ## Ask a real registry 100,000 random questions over every path, hold each answer against an independent oracle, print the counts
	@PYTHONPATH=tests/support $(BIN)/python -m oracle.proof $(ARGS)

mcp-replicas: env ## 10,000 MCP requests of four revisions in turns over three replicas, one killed, the same calls in all revisions
	TOOLCRIB_MCP_REQUESTS=10000 $(BIN)/python -m pytest -q -s tests/component/mcp/test_replicas.py $(ARGS)

attack: env build-tools ## Attack running registries and a real API server with generated cases of every class, in two minutes; SEED=N repeats a run, COUNT=N cases a class
	@PYTHONPATH=tests/support $(BIN)/python -m attack.run $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

mcp-conformance: env ## MCP's conformance suite against /mcp/direct, in both revisions; needs npm, once (ARGS="--keep FOLDER" keeps its output)
	@$(BIN)/python $(PEERS)/environments.py
	@PYTHONPATH=tests/support $(BIN)/python -m mcp_peers.conformance $(ARGS)

mcp-peers: env ## MCP clients and servers of others against a registry: SDKs, frameworks, the inspector; needs npm, once
	@$(BIN)/python $(PEERS)/environments.py
	$(BIN)/python -m pytest -n $(or $(JOBS),3) $(DIST) -m peers $(call MARKED,peers) $(ARGS)

frameworks: env ## Agents of other people's frameworks against a registry, one script for all; writes the table of docs/guides/frameworks.md; ARGS=--changed checks it
	@PYTHONPATH=tests/support $(BIN)/python -m frameworks.conformance $(ARGS)

mcp-servers: env ## Import MCP's reference servers of npm and PyPI, call them through a registry, print a table; needs npm, once
	@$(BIN)/python $(PEERS)/environments.py
	$(BIN)/python -m pytest -q -s -m peers tests/peers/test_reference_servers.py $(ARGS)

bench: env build-tools ## Measure, and print most figures of docs/contributing/performance.md
	@exec $(BIN)/python bench/run.py $(ARGS)

tails: env ## Measure how much longer the slowest calls take than the usual ones, against bare proxies; fails above 1.5 times; wants a quiet machine
	@exec $(BIN)/python bench/run.py tails $(ARGS)

bench-search: env ## Search quality of every method: DATA=<folder of sets> OUT=<file.json> LIMIT=500 STORES=embedded
	@$(BIN)/python bench/search/run.py compare "$(DATA)" --stores "$(STORES)" $(if $(OUT),--out "$(OUT)") $(if $(LIMIT),--limit "$(LIMIT)") $(ARGS)

bench-search-scale: env ## Search speed at 1, 8 and 64 callers, with 1,000, 10,000 and 100,000 tools
	@$(BIN)/python bench/search/scale.py "$(DATA)" --stores "$(STORES)" $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-search-sizes: env ## hit@k and p50, p95, p99 of a search among 100, 1,000 and 10,000 tools, in one table
	@$(BIN)/python bench/search/run.py sizes "$(DATA)" $(if $(OUT),--out "$(OUT)") $(ARGS)

bench-search-recall: env ## Searches of callers who see 100, 10, 1 and 0.1 % of 10,000 tools, in both stores, against the visible tools alone
	@$(BIN)/python bench/search/run.py recall "$(DATA)" $(if $(OUT),--out "$(OUT)") $(ARGS)

search-faults: env build-tools ## Searches while the index or the embedder is killed, hangs, is damaged or wiped; prints how long each took to be whole again
	@TOOLCRIB_REQUIRE_REAL=1 $(BIN)/python -m pytest -q -s -k faults tests/component/search $(ARGS)

search-gate: env ## Fail where search quality fell by more than a point on the committed subset, for callers who see part of it too; ARGS=--update keeps new figures
	@$(BIN)/python bench/search/run.py gate $(ARGS)

revocation: env build-tools ## Measure how fast a revoked grant is gone, on three replicas under load; print the table of docs/guides/revocation.md
	@exec $(BIN)/python bench/run.py revocation $(ARGS)

large-namespaces: env build-tools ## 1,000 tools of 100 KB in one namespace, on a real API server: used as far as they fit, and memory; CI runs 300
	TOOLCRIB_LARGE_TOOLS=1000 TOOLCRIB_REQUIRE_REAL=1 $(BIN)/python -m pytest -m long -s tests/cluster/test_large_namespaces.py

hidden-timing: env ## Measure how much longer an answer takes for a hidden tool than for none, 20,000 pairs a route; fails above 2 µs; wants a quiet machine
	@exec $(BIN)/python bench/run.py hidden $(ARGS)

mcp-bench: env ## Measure what MCP costs: beside /v1, and the whole hop to an MCP server beside the server alone and FastMCP's proxy; fails above a bound; wants a quiet machine
	@$(BIN)/python $(PEERS)/environments.py
	@exec $(BIN)/python bench/run.py mcp hops $(ARGS)

openapi-documents: env ## Import GitHub's, Stripe's, Kubernetes' and our own OpenAPI documents, call one operation of each kind, search 1,221 tools; needs npm, once
	@exec $(BIN)/python bench/run.py openapi $(ARGS)

growth: env ## Measure how long a change takes to reach an agent at 10 to 10,000 tools; fails where p99 at 10,000 is more than 3 times that at 100
	@exec $(BIN)/python bench/run.py growth $(ARGS)

health: env ## Measure how long GET /healthz takes while 10,000 tools are embedded; fails where p99 is above 100 ms more than an idle server's
	@exec $(BIN)/python bench/run.py health $(ARGS)

mcp-tokens: env ## Count the tokens that the meta-tools of /mcp take in a model's context (o200k)
	@PYTHONPATH=tests/support $(BIN)/python -m mcp_tokens

bench-context: env ## Count the prompt tokens of each mode of the agent runner, 5 to 1,000 tools; DATA=<folder of sets> adds the real catalog; fails above .5 tokens a tool
	@$(BIN)/python bench/context.py $(DATA) $(ARGS)

bench-modes: env ## Tasks for a real model in each mode of the agent runner: a small one on this machine (500 MB, once, 15 minutes), or ARGS="--url URL --model NAME"
	@PYTHONPATH=tests/support $(BIN)/python bench/modes.py $(ARGS)

bulkheads: env ## Measure whom 1,024 slow calls of one agent delay, and what a name server that loses packets costs calls
	@exec $(BIN)/python bench/run.py bulkheads lookups $(ARGS)

image: ## Build the image with docker (TAG=…, BASE_IMAGE=…, BUILDER_IMAGE=…); prints its size, writes dist/sbom.cdx.json
	@"$(SYSTEM_PYTHON)" requirements/image.py --tag "$(TAG)" --base "$(BASE_IMAGE)" --builder "$(BUILDER_IMAGE)" --sbom dist/sbom.cdx.json $(ARGS)

wheel: env ## Build the wheels of Toolcrib and of its client into dist/
	@rm -rf dist && $(BIN)/python -m hatchling build -t wheel
	@cd client && ../$(BIN)/python -m hatchling build -t wheel -d ../dist

wheel-smoke: wheel ## Install each wheel into an environment of its own, run its commands and examples there
	@$(BIN)/python tests/support/wheel_smoke.py dist/*.whl
	@$(BIN)/python tests/support/client_smoke.py dist/toolcrib_client-*.whl

client-size: wheel ## Measure the client alone: what it adds to Python, and its import beside that of its HTTP library; fails above a budget
	@$(BIN)/python tests/support/client_smoke.py --size dist/toolcrib_client-*.whl

ci: ## What continuous integration runs; .ci/run --list names its steps, .ci/run NAME… runs some
	@.ci/run

clean: ## Remove the environment, caches and builds; built servers in ~/.cache/toolcrib stay
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
