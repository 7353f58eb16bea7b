# Two commands are enough to start: `make demo` and `make test`.  Each sets up what it
# needs in .venv, from the lock file, with nothing installed before but Python and make.

PYTHON ?= python3
# Twice as many workers as cores: many tests wait for processes and servers.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Programs start faster from compiled files, and a test run starts hundreds.
unexport PYTHONDONTWRITEBYTECODE
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: javascript test-javascript demo test test-all campaign quick test-newer lanes check lint format bench footprint structure docs site lock wheel release oracles foreign container pyright phoenix temporal mcp-servers front-ends clean help

help:
	@echo "make demo       watch an agent be killed, resumed, stopped and switched: no key, no network"
	@echo "make test       format, lint, types, tests; a tenth of every campaign"
	@echo "make test-all   everything, with this Python and a newer one; before a release (an hour)"
	@echo "make campaign   whole campaigns with new seeds; what fails is written to build/regressions"
	@echo "make quick      format, lint and a quick selection of the tests, for the inner loop"
	@echo "make test-newer the tests with a newer Python, if there is one (python3.x or pyenv's)"
	@echo "make lanes      planted defects that make test and make test-all notice (half an hour)"
	@echo "make check      format, lint and types only"
	@echo "make bench      speed, memory and targets beside other libraries (installs them; 20 minutes)"
	@echo "make footprint  packages, size and import time, compared with another library"
	@echo "make javascript installs what the inspector's JavaScript is checked with (needs npm)"
	@echo "make structure  modules, calls and knots of the runtime beside their targets"
	@echo "make site       build the documentation site in build/site"
	@echo "make docs       generate the pages that come from tables"
	@echo "make oracles    vendors' SDKs and other agent libraries against the simulator (installs them)"
	@echo "make phoenix    a trace read back from Arize Phoenix (installs it)"
	@echo "make temporal   a run on Temporal whose worker is killed, with a server and a database of its own"
	@echo "make mcp-servers  MCP servers of other projects, over standard input, HTTP and SSE (installs them; needs npm)"
	@echo "make front-ends  clients of the Vercel AI SDK and of AG-UI against bridle serve (installs them; needs npm)"
	@echo "make container  build the image of the platform and start it beside PostgreSQL (needs a docker daemon)"
	@echo "make pyright    types as pyright infers them (installs it)"
	@echo "make foreign    clients and servers of other projects, each in its own environment (installs today's releases)"
	@echo "make lock       update the lock file"
	@echo "make release    build, check and try the files of a release; publishes nothing (DRAFT=--draft before its date is set)"
	@echo "make wheel      build, install in an empty environment, and try it"

demo: $(READY)
	@$(BIN)/python examples/demo.py

PYTEST = -m pytest -n $(JOBS) --dist worksteal

# Runs the tests, with the types checked beside them. The first run compiles the tests once, and not once per worker.
define check_types_and_run
@mkdir -p build
@$(BIN)/python -m compileall -q src
@$(BIN)/mypy >build/types.txt 2>&1 & types=$$!; \
ls tests/__pycache__/*pytest*.pyc >/dev/null 2>&1 || $(BIN)/python -m pytest --collect-only >/dev/null; \
$(1) $(BIN)/python $(PYTEST); tests=$$?; \
wait $$types; checked=$$?; cat build/types.txt; exit $$((tests || checked))
endef

# One tenth of every campaign, with fixed seeds.
test: lint javascript
	$(call check_types_and_run,)

# Whole campaigns, every kill point and every integration, with this Python and with the newest one.
test-all: lint javascript
	$(call check_types_and_run,BRIDLE_CAMPAIGN=1)
	$(BIN)/python bench/footprint.py --check
	BRIDLE_CAMPAIGN=1 $(MAKE) --no-print-directory test-newer

# Long campaigns with new seeds: BRIDLE_CAMPAIGN=20 is twenty times as long, BRIDLE_SEED repeats one that failed.
campaign: $(READY)
	@seed=$${BRIDLE_SEED:-$$($(PYTHON) -c 'import secrets; print(secrets.randbelow(10**9) + 1)')}; \
	echo "seeds from $$seed"; \
	BRIDLE_SEED=$$seed BRIDLE_CAMPAIGN=$${BRIDLE_CAMPAIGN:-3} $(BIN)/python $(PYTEST) -m campaign

# The rules of the tree, the values, the core without caching and compaction, the encoders of every wire and the
# basics of an agent.
# Tests marked `slow` wait for `make test`, and so do types: `make check` has them.
QUICK := tests/tidy tests/values tests/core/*.py tests/core/budget tests/core/calls tests/core/context \
  tests/core/recovery tests/providers/wire tests/providers/*/test_*_encode.py tests/run/test_agent.py
quick: $(READY)
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/python $(PYTEST) -m "not slow" $(QUICK)

# With the newest Python that is installed and newer than the default one.
NEWER := bench/.work/newer
test-newer:
	@default=$$($(PYTHON) -c 'import sys; print(sys.version_info[1])'); \
	newer=$$(for minor in 14 13 12; do [ $$minor -gt $$default ] || break; \
	  for each in python3.$$minor "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.$$minor.*/bin/python; do \
	    "$$each" -c '' 2>/dev/null && echo "$$each" && break 2; done; done); \
	if [ -z "$$newer" ]; then echo "no Python newer than 3.$$default was found: no second run of the tests"; exit 0; fi; \
	echo "the tests once more, with $$("$$newer" --version)"; \
	$(MAKE) --no-print-directory PYTHON="$$newer" VENV=$(NEWER) $(NEWER)/.ready && \
	$(NEWER)/bin/python -m compileall -q src && \
	$(NEWER)/bin/python $(PYTEST)

# Exits with 1 if `make test` notices less than nine tenths of what `make test-all` notices.
lanes: $(READY)
	$(BIN)/python -m tests.campaigns.lanes.measure_lanes --jobs 2

lint: $(READY)
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .

check: lint
	$(BIN)/mypy

# ESLint and the TypeScript checker, for tests/serve/test_inspector_javascript.py; tests say what is missing without them.
JAVASCRIPT := bench/.work/javascript
javascript: $(JAVASCRIPT)/.ready
test-javascript: $(READY) javascript
	@$(BIN)/python -m pytest -q -rs tests/serve/test_inspector_javascript.py
$(JAVASCRIPT)/.ready: tests/serve/javascript/package-lock.json
	@mkdir -p $(JAVASCRIPT) && cp tests/serve/javascript/package*.json $(JAVASCRIPT)
	@if ! command -v npm >/dev/null; then echo "npm is not installed: the inspector's JavaScript is not checked"; \
	elif npm ci --prefix $(JAVASCRIPT) --no-audit --no-fund --silent; then touch $@; \
	else echo "npm cannot install its packages: the inspector's JavaScript is not checked"; fi

format: $(READY)
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

bench: $(READY)
	$(BIN)/python bench/speed.py

footprint: $(READY)
	$(BIN)/python bench/footprint.py

structure: $(READY)
	@$(BIN)/python bench/structure.py

docs: $(READY)
	$(BIN)/python docs/generate.py

site: $(READY)
	@$(BIN)/python docs/site/build.py

lock:
	$(PYTHON) -m pip install -q uv
	$(PYTHON) -m uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --python-version 3.11 --extra dev --upgrade pyproject.toml -o requirements.lock

release: $(READY)
	@$(BIN)/python bench/release.py $(DRAFT)

wheel: $(READY)
	$(BIN)/python bench/footprint.py --wheel
	@echo "built, installed and run in a temporary folder; to keep a wheel: $(BIN)/python -m pip wheel --no-deps -w dist ."

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Bridle needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PYTHON) -m pip --python $(BIN)/python install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

ORACLES := bench/.work/oracles
oracles:
	@test -x $(ORACLES)/bin/python || $(PYTHON) -m venv $(ORACLES) 2>/dev/null || $(PYTHON) -m venv --without-pip $(ORACLES)
	@$(PYTHON) -m pip --python $(ORACLES)/bin/python install -q --disable-pip-version-check --upgrade --upgrade-strategy eager -e ".[oracles]"
	@$(PYTHON) -m pip --python $(ORACLES)/bin/python install -q --disable-pip-version-check --no-deps --upgrade litellm  # only its table of models
	$(ORACLES)/bin/python -m pytest -rs tests/wire/test_sdks.py tests/providers/test_model_table.py tests/watchers/test_notebook.py tests/watchers/test_otel_vendors.py tests/docs/test_programs.py tests/serve/wires/test_served_sdks.py
	$(ORACLES)/bin/python -m tests.wire.vendors.make_vendor_shapes --check
	BRIDLE_CAMPAIGN=50 $(ORACLES)/bin/python -m pytest -s tests/wire/vendors/test_vendor_types.py tests/wire/vendors/test_vendor_replies.py tests/wire/vendors/test_vendor_streams.py

# basedpyright is pyright with its own node, so that nothing else has to be installed.
PYRIGHT := bench/.work/pyright
pyright: $(READY)
	@test -x $(PYRIGHT)/bin/python || $(PYTHON) -m venv $(PYRIGHT)
	@$(PYTHON) -m pip --python $(PYRIGHT)/bin/python install -q --disable-pip-version-check basedpyright
	BRIDLE_PYRIGHT="$(CURDIR)/$(PYRIGHT)/bin/basedpyright" $(BIN)/python -m pytest -rs tests/run/context/test_*_typing.py tests/run/output/test_*_typing.py

# A receiver of OpenTelemetry traces, on this machine only; its data are removed afterwards.
PHOENIX := bench/.work/phoenix
PHOENIX_AT ?= 6106
phoenix: $(READY)
	@test -x $(PHOENIX)/bin/python || $(PYTHON) -m venv $(PHOENIX)
	@$(PYTHON) -m pip --python $(PHOENIX)/bin/python install -q --disable-pip-version-check arize-phoenix
	@data=$$(mktemp -d); \
	PHOENIX_WORKING_DIR=$$data PHOENIX_HOST=127.0.0.1 PHOENIX_PORT=$(PHOENIX_AT) PHOENIX_GRPC_PORT=0 \
	  PHOENIX_TELEMETRY_ENABLED=false $(PHOENIX)/bin/phoenix serve >$$data/log 2>&1 & server=$$!; \
	trap 'kill $$server; rm -rf "$$data"' EXIT; \
	for _ in $$(seq 120); do $(BIN)/python -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1])' \
	  http://127.0.0.1:$(PHOENIX_AT)/healthz 2>/dev/null && break; sleep 1; done; \
	BRIDLE_PHOENIX=http://127.0.0.1:$(PHOENIX_AT) $(BIN)/python -m pytest -rs tests/watchers/test_otel_phoenix.py

temporal: $(READY)
	@$(BIN)/python -m tests.engines.run_demo examples/temporal_refunds.py

# A current Node beside the one of the machine: npm chooses releases that the Node it runs on can use.
NODE := bench/.work/node
WITH_NODE = PATH="$(CURDIR)/$(NODE)/node_modules/.bin:$$PATH"
define install_node
@npm install --prefix $(NODE) --no-audit --no-fund --silent node@24
endef

# The database server and the proxy run with the first major version of the protocol's package, the others with the newest.
MCP_SERVERS := bench/.work/mcp-servers
mcp-servers: $(READY)
	@test -x $(MCP_SERVERS)/bin/python || $(PYTHON) -m venv $(MCP_SERVERS)
	@test -x $(MCP_SERVERS)/v1/bin/python || $(PYTHON) -m venv $(MCP_SERVERS)/v1
	@$(PYTHON) -m pip --python $(MCP_SERVERS)/bin/python install -q --disable-pip-version-check --upgrade \
	  mcp-server-time mcp-server-fetch mcp-server-git
	@$(PYTHON) -m pip --python $(MCP_SERVERS)/v1/bin/python install -q --disable-pip-version-check --upgrade mcp-server-sqlite \
	  mcp-proxy "mcp<2"
	$(install_node)
	@$(WITH_NODE) npm install --prefix $(MCP_SERVERS) --no-audit --no-fund --silent \
	  $(patsubst %,@modelcontextprotocol/server-%@latest,everything filesystem memory sequential-thinking)
	$(WITH_NODE) BRIDLE_MCP_SERVERS="$(CURDIR)/$(MCP_SERVERS)" $(BIN)/python -m pytest -rs -s tests/tools/mcp/test_mcp_reference_servers.py

FRONT_ENDS := bench/.work/front-ends
front-ends: $(READY)
	$(install_node)
	@for version in 6 7; do \
		$(WITH_NODE) npm install --prefix $(FRONT_ENDS)/$$version \
			--no-audit --no-fund --silent ai@$$version @ag-ui/core@1 @ag-ui/client@1 && \
		$(WITH_NODE) BRIDLE_FRONT_ENDS="$(CURDIR)/$(FRONT_ENDS)/$$version" \
			BRIDLE_AI_SDK=$$version $(BIN)/python -m pytest -rs tests/serve/test_front_ends.py || exit 1; \
	done

foreign: $(READY)
	@failed=0; \
	$(BIN)/python bench/foreign/run.py --newest --write || failed=1; \
	$(BIN)/python bench/foreign/run.py --install --served --write || failed=1; \
	$(BIN)/python bench/foreign/run.py --install --gateway --write || failed=1; \
	$(BIN)/python bench/foreign/servers.py --newest --write || failed=1; \
	exit $$failed

# Servers of the platform in containers are healthy, and let nobody in without a token.
COMPOSE := docker compose -f deploy/compose.yml
container: $(READY)
	@if ! docker info >/dev/null 2>&1; then echo "no docker daemon: the container is not built"; exit 0; fi; \
	folder=$$(mktemp -d); trap '$(COMPOSE) down --volumes; rm -rf "$$folder"' EXIT; \
	export POSTGRES_PASSWORD=$$(openssl rand -hex 16) PLATFORM_TOKENS_FILE=$$folder/tokens.toml; \
	$(BIN)/bridle serve --new-token ada --tenant acme | sed '1,2d' >"$$PLATFORM_TOKENS_FILE"; \
	chmod 755 "$$folder"; \
	$(COMPOSE) up --build --detach --wait && $(COMPOSE) run --rm nightly && \
	for port in 8421 8422; do \
		curl -sf "localhost:$$port/health/ready" && \
		test "$$(curl -s -o /dev/null -w '%{http_code}' "localhost:$$port/api/sessions")" = 401 || exit 1; \
	done

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/.work
