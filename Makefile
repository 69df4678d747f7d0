# Everything a newcomer needs: `make demo` and `make test` set up what they use. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
# Tests with processes mostly wait, so there are two more workers than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
ARGS ?=
QUICK ?=
PARTS ?=
TABLES ?=
DATA ?= build/data/ml-100k# of a report; `secemb data fetch ml-100k` downloads it

# The tests start dozens of processes, so the modules that they import are compiled once beforehand.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# The build tool comes from the constraints too, hence no isolated build with the newest version.
INSTALL := $(PIP) install -c constraints.txt
EDITABLE := $(INSTALL) --no-build-isolation -e

CREATED := $(VENV)/.created
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
# The lab is not part of the wheel, so it must be on the path.
LAB := PYTHONPATH=lab $(BIN)/python -m secemb_lab
BROWSER := $(VENV)/.browser
PROMETHEUS := $(VENV)/.prometheus
NGINX := $(VENV)/.nginx
FAKETIME := $(VENV)/.faketime
CADDY := $(VENV)/.caddy
NAMESPACES := $(VENV)/.namespaces
CKKS := $(VENV)/.ckks
DEVICE_JS := sdk/typescript/dist/src/index.js
DEVICE_TS := $(wildcard $(addprefix sdk/typescript/,src/*.ts src/*/*.ts test/*.ts scripts/*.ts tsconfig.json package.json))
PINNED := pyproject.toml setup.py constraints.txt

KERNEL := shared/secemb_shared/_kernel.abi3.so
NATIVE := $(wildcard shared/native/*.c shared/native/*.h)
# The compiler of the interpreter's build.
COMPILER = $${CC:-$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo docs docs-site test typescript bench loadtest memory pacing attack scale wire quality sequences paper paper-docs report-dp soak vectors check lint format format-check types kernel which-kernel kernel-check sanitize wheels constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'PYTHON=python3.12 VENV=.venv312 choose another interpreter; ARGS="…" is passed on to the command.'
	@echo 'QUICK=1 makes bench, loadtest, memory, pacing, attack, scale, wire, paper and the reports short; their figures then only show that they run.'

demo: $(RUN) which-kernel ## show the whole product in a minute: two servers, 200 devices, a report in build/demo.html
	@$(BIN)/python -m secemb_tools demo $(ARGS)

test: $(DEV) $(BROWSER) $(PROMETHEUS) $(NGINX) $(FAKETIME) $(CADDY) $(NAMESPACES) $(CKKS) typescript which-kernel ## run the tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# The tests of the TypeScript device run what this builds. Without Node they are skipped, with a message.
typescript: ## install and build the TypeScript device in sdk/typescript (needs Node 20.19 or newer, with npm)
	@if node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null \
		&& command -v npm >/dev/null; then $(MAKE) --no-print-directory $(DEVICE_JS); \
	elif [ "$$NODE_TESTS" = required ]; then \
		echo 'there is no Node 20.19 or newer with npm, and the tests of the TypeScript device must run (NODE_TESTS=required)' >&2; exit 1; \
	else echo 'there is no Node 20.19 or newer with npm: the TypeScript device is not built and its tests are skipped; on Debian 13: apt-get install nodejs npm'; fi

$(DEVICE_JS): sdk/typescript/node_modules/.package-lock.json $(DEVICE_TS)
	@echo 'building the TypeScript device'
	@cd sdk/typescript && npm run --silent build

sdk/typescript/node_modules/.package-lock.json: sdk/typescript/package-lock.json
	@echo 'installing what the TypeScript device needs'
	@cd sdk/typescript && npm ci --silent
	@touch $@

bench: $(DEV) which-kernel ## measure, print tables and write build/bench.json
	@$(LAB) bench $(if $(QUICK),--seconds 0.01 --catalogue ML100K) $(ARGS)

loadtest: $(RUN) which-kernel ## run many devices against two real servers, write build/loadtest.json
	@$(LAB) loadtest $(if $(QUICK),--devices 4 --rounds 2 --catalogue ML100K) $(ARGS)

memory: $(RUN) which-kernel ## measure the peak memory of two real servers beside the plan's, write build/memory.json
	@$(LAB) memory $(if $(QUICK),--items 2000) $(ARGS)

pacing: $(RUN) which-kernel ## simulate fleets of up to a million devices against server 0's pacing, write build/pacing.json
	@$(LAB) pacing $(if $(QUICK),--quick) $(ARGS)

attack: $(RUN) which-kernel ## run hostile clients against two real servers, write build/attack.json and a page
	@$(LAB) attack $(if $(QUICK),--quick) $(ARGS)

# Ray is among what the tests need.
scale: $(DEV) which-kernel ## measure a server past one machine, write build/scale.json and a page
	@$(LAB) scale $(if $(SECTIONS),--sections $(SECTIONS)) $(if $(QUICK),--quick) $(ARGS)

wire: $(RUN) which-kernel ## count a device's bytes on the wire and time reads, write build/wire.json
	@$(LAB) wire $(if $(QUICK),--sessions 2 --catalogue ML100K) $(ARGS)

# A folder with all datasets: next to the project, or where `secemb data fetch` puts them.
quality: DATA = $(firstword $(wildcard ../shared/data) build/data)
quality: $(DEV) which-kernel ## measure recommendations on all sets in DATA, write build/quality.json (an hour)
	@OMP_NUM_THREADS=1 $(LAB) quality --data $(DATA) $(if $(PARTS),--parts $(PARTS)) $(if $(QUICK),--quick) $(ARGS)

# Here, PARTS are names of cases.
sequences: DATA = $(firstword $(wildcard ../shared/data) build/data)
sequences: $(DEV) which-kernel ## measure models of events and texts on all sets in DATA, write build/sequences.json (hours)
	@OMP_NUM_THREADS=1 $(LAB) sequences --data $(DATA) $(if $(PARTS),--cases $(PARTS)) $(if $(QUICK),--quick) $(ARGS)

paper: DATA = $(firstword $(wildcard ../shared/data) build/data)
paper: $(DEV) $(CKKS) which-kernel ## measure the paper's tables and figures, write build/paper/index.html (a night)
	@OMP_NUM_THREADS=1 $(LAB) paper --data-dir $(DATA) $(if $(TABLES),--tables $(TABLES)) $(if $(QUICK),--quick) $(ARGS)

paper-docs: $(DEV) ## add the tables of the last `make paper` to docs/paper.json, and write docs/paper.md from it
	@$(LAB) paper --docs $(ARGS)

report-dp: $(DEV) which-kernel ## train every model on DATA with noise, write build/dp.json (hours)
	@$(LAB) report dp --path $(DATA) $(if $(QUICK),--quick) $(ARGS)

soak: $(DEV) which-kernel ## run the simulation of crashes and losses with thousands of examples, and a few tests in full
	@SOAK_TESTS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/simulation tests/integration/test_ledger_tokens.py tests/e2e/test_demo.py $(ARGS)

docs: $(RUN) ## write the reference of all commands, docs/reference/cli.md and cli.schema.json, from the code
	@TYPER_USE_RICH=0 $(BIN)/typer secemb_tools.cli.main utils docs --name secemb --title 'The `secemb` command' --output docs/reference/cli.md
	@$(BIN)/python -m secemb_tools.cli.results >docs/reference/cli.schema.json

docs-site: $(DEV) ## build the documentation site in build/site; a warning is an error
	@rm -rf build/site
	@$(BIN)/zensical build --clean --strict

vectors: $(RUN) which-kernel ## regenerate the test vectors
	@$(LAB) vectors $(ARGS)

check: lint format-check types ## lint, format-check and types

lint: $(DEV) ## look for mistakes with ruff
	@$(BIN)/ruff check .

format: $(DEV) ## format the code and sort its imports
	@$(BIN)/ruff check --select I --fix .
	@$(BIN)/ruff format .

format-check: $(DEV) ## say which files are not formatted
	@$(BIN)/ruff format --check .

types: $(DEV) ## check the types with mypy, strictly
	@echo 'checking the types'
	@$(BIN)/mypy

kernel: $(RUN) ## rebuild the C kernel in place
	@rm -f $(KERNEL)
	@$(MAKE) --no-print-directory which-kernel
	@test -f $(KERNEL) || { echo 'the C kernel was not built' >&2; exit 1; }

which-kernel: $(KERNEL)
	@$(BIN)/python -m secemb_tools kernel

# All instruction sets must give the same digests. ARMv8 runs under an emulator if both tools are installed.
ARM_CC ?= aarch64-linux-gnu-gcc
ARM_RUN ?= qemu-aarch64

kernel-check: ## compare the kernel's instruction sets, ARMv8 too where it can be emulated (needs gcc)
	@mkdir -p build/kernel-check
	@$${CC:-gcc} -O2 -Wall -Wextra -Werror shared/native/kernel_check.c -o build/kernel-check/here
	@build/kernel-check/here >build/kernel-check/here.txt
	@if command -v $(ARM_CC) >/dev/null && command -v $(ARM_RUN) >/dev/null; then \
		$(ARM_CC) -O2 -Wall -Wextra -Werror -static shared/native/kernel_check.c -o build/kernel-check/arm \
		&& $(ARM_RUN) build/kernel-check/arm >build/kernel-check/arm.txt; \
	else echo 'ARMv8 was not compared; on Debian: apt install gcc-aarch64-linux-gnu qemu-user'; rm -f build/kernel-check/arm.txt; fi
	@cat build/kernel-check/*.txt | awk '/^# run/ { n = 0; runs++; next } { n++; if (runs == 1) want[n] = $$0; else if (want[n] != $$0) bad = 1 } \
		END { if (bad) { print "the instruction sets differ"; exit 1 } print runs " instruction sets agree on " n " digests" }'

sanitize: $(DEV) ## run the kernel's tests with AddressSanitizer and UndefinedBehaviorSanitizer (needs gcc)
	@command -v gcc >/dev/null || { echo 'make sanitize needs gcc' >&2; exit 1; }
	@test -e "$$(gcc -print-file-name=libasan.so)" || { echo 'make sanitize needs the libasan that belongs to gcc' >&2; exit 1; }
	@ls tests/unit/test_kernel*.py >/dev/null
	@echo 'building the C kernel with sanitizers in build/sanitize'
	@rm -rf build/sanitize && mkdir -p build/sanitize
	@CC=gcc KERNEL_SANITIZE=1 $(BIN)/python setup.py -q egg_info --egg-base build/sanitize \
		build --force --build-base build/sanitize --build-lib build/sanitize/lib >build/sanitize/build.log 2>&1 \
		|| { cat build/sanitize/build.log >&2; exit 1; }
	@export LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=build/sanitize/lib; \
		$(BIN)/python -c 'import secemb_shared._kernel as k; assert "build/sanitize/lib" in k.__file__, k.__file__' \
		&& $(BIN)/python -m pytest --capture=sys tests/unit/test_kernel*.py $(ARGS)

wheels: ## build wheels and the source distribution in build/wheels, and try them without a compiler
	@PYTHON=$(PYTHON) deploy/wheels.sh

constraints: ## resolve the newest versions that pyproject.toml allows and pin them (needs Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo 'the pins are made with Python 3.11, the oldest supported: make constraints PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'resolving in a fresh environment, build/constraints (about a minute)'
	@rm -rf build/constraints && mkdir -p build && $(PYTHON) -m venv build/constraints
	@$(PYTHON) -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb')); e = p['project']['optional-dependencies']; \
		print(*p['build-system']['requires'], *p['project']['dependencies'], *e['server'], *e['tools'], *e['train'], *e['ray'], *e['paper'], *e['wheels'], *e['dev'], sep='\n')" \
		>build/constraints/wanted.txt
	@build/constraints/bin/python -m pip --disable-pip-version-check -qq install --upgrade -r build/constraints/wanted.txt
	@build/constraints/bin/python -m pip --disable-pip-version-check check
	@build/constraints/bin/python -m pip --disable-pip-version-check freeze --all --exclude pip >build/constraints/frozen.txt
	@{ sed -n '/^#/p' constraints.txt; echo; sed 's/+cpu$$//' build/constraints/frozen.txt | LC_ALL=C sort -f; } >build/constraints/constraints.txt
	@! grep -n ' @ \|://' build/constraints/frozen.txt || { echo 'a pin names a place instead of a version' >&2; exit 1; }
	@mv build/constraints/constraints.txt constraints.txt
	@echo "constraints.txt: $$(grep -c == constraints.txt) pins"

clean: ## remove everything make has made, the environment too
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache $(KERNEL) sdk/typescript/dist sdk/typescript/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment.

$(CREATED):
	@command -v $(PYTHON) >/dev/null || { echo '$(PYTHON) was not found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -c 'import platform; print(platform.python_version())'); name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo '$(PYTHON) cannot make environments with pip; on Debian and Ubuntu: apt install python3-venv; or name another: make PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'creating $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUN): $(PINNED) | $(CREATED)
	@echo 'installing into $(VENV) (half a minute the first time)'
	@$(INSTALL) setuptools
	@$(EDITABLE) '.[server,tools]'
	@touch $@

$(DEV): $(PINNED) | $(CREATED)
	@echo 'installing into $(VENV), with what the tests need (a minute the first time)'
	@$(INSTALL) setuptools
	@$(EDITABLE) '.[server,tools,train,dev]'
	@touch $(RUN) $@

# There is no wheel for some interpreters and processors, and nothing else needs it.
$(CKKS): $(DEV)
	@if $(EDITABLE) '.[paper]' --only-binary tenseal 2>/dev/null; then touch $@; \
	else echo 'TenSEAL was not installed: what compares with homomorphic encryption is left out'; fi

# The tests of the operator's page use a real browser. If there is none and none can be installed, they are skipped with
# a message; the next `make test` tries again. With BROWSER_TESTS=required, as in .ci/run, this step fails instead.
CHROMIUM ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))

# Another program may be installing packages: wait for its lock.
APT := apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300

$(BROWSER): | $(CREATED)
	@if [ -z '$(CHROMIUM)' ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo 'installing Chromium for the tests of the page (a minute)'; mkdir -p build; \
		{ $(APT) update && $(APT) install -y --no-install-recommends chromium fonts-dejavu-core; } >build/chromium.log 2>&1 || true; \
	fi
	@if [ -n '$(CHROMIUM)' ] || command -v chromium >/dev/null; then touch $@; \
	elif [ "$$BROWSER_TESTS" = required ]; then \
		tail -n 20 build/chromium.log >&2 2>/dev/null; \
		echo 'there is no Chromium, and the tests of the page must run (BROWSER_TESTS=required): apt-get install chromium, or name one: CHROMIUM=/path' >&2; exit 1; \
	else echo 'there is no Chromium: the tests of the page are skipped; apt-get install chromium, or name one: make test CHROMIUM=/path'; fi

# The same for other programs from Debian: $(call packaged,program,packages,what is tested with it,variable,log)
define packaged
	@if ! command -v $(1) >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo 'installing $(2) for the tests of $(3) (a minute)'; mkdir -p build; \
		{ $(APT) update && $(APT) install -y --no-install-recommends $(2); } >build/$(5).log 2>&1 || true; \
	fi
	@if command -v $(1) >/dev/null; then touch $@; \
	elif [ "$$$(4)" = required ]; then \
		tail -n 20 build/$(5).log >&2 2>/dev/null; \
		echo 'there is no $(1), and the tests of $(3) must run ($(4)=required): apt-get install $(2)' >&2; exit 1; \
	else echo 'there is no $(1): the tests of $(3) are skipped; apt-get install $(2)'; fi
endef

# promtool checks the rules, and a Prometheus server evaluates them on a running pair of servers.
$(PROMETHEUS): | $(CREATED)
	$(call packaged,prometheus,prometheus,its rules,PROMETHEUS_TESTS,prometheus)

$(NGINX): | $(CREATED)
	$(call packaged,nginx,nginx libnginx-mod-stream,deploy/proxy,PROXY_TESTS,nginx)

$(FAKETIME): | $(CREATED)
	$(call packaged,faketime,faketime,wrong clocks,CLOCK_TESTS,faketime)

$(NAMESPACES): | $(CREATED)
	$(call packaged,ip,iproute2,lost packets,NAMESPACE_TESTS,iproute2)

$(CADDY): | $(CREATED)
	$(call packaged,caddy,caddy,deploy/proxy,PROXY_TESTS,caddy)

# The installation builds the kernel too, silently. This rule rebuilds it after changes of the C sources, and shows
# errors. Without a compiler it does nothing: after you install one, the next command builds the kernel. The old kernel
# is removed first, so that it is never older than its source.
$(KERNEL): setup.py $(NATIVE) | $(RUN)
	@rm -rf $@ build/kernel
	@cc="$(COMPILER)"; if command -v $${cc%% *} >/dev/null; then \
		echo 'building the C kernel'; mkdir -p build; \
		$(BIN)/python setup.py -q build_ext --inplace --build-lib build/kernel --build-temp build/kernel >build/kernel.log 2>&1; \
		test -f $@ || echo 'the C kernel did not compile, build/kernel.log says why'; \
	fi
