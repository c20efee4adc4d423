# Two environments, one stamp each: .venv holds everything, .venv-demo what `make demo` needs. A stamp is older than
# its sources when the extension must be built again; Python files are used where they lie and need nothing.

PYTHON ?= python3
PYTEST_ARGS ?= -q -n auto
BENCH_ARGS ?=

native := CMakeLists.txt $(wildcard core/*)
inputs := pyproject.toml constraints-dev.txt $(native)
bin := .venv/bin
# Where everything is installed already, the demo compares with more libraries.
demo := $(if $(wildcard .venv/.installed),.venv,.venv-demo)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint format bench sanitize clean distclean

help:
	@echo "make demo      see it work: sparsemax beside softmax, times, and what of the paper needs no download"
	@echo "make test      run the test suite (PYTEST_ARGS=\"$(PYTEST_ARGS)\")"
	@echo "make install   .venv with the package and everything that development needs"
	@echo "make lint      ruff, mypy, clang-format"
	@echo "make format    let ruff and clang-format rewrite the sources"
	@echo "make bench     time it against the frameworks' own softmax (BENCH_ARGS=...)"
	@echo "make sanitize  the C++ core alone, tested under ASan and UBSan"
	@echo "make clean     remove what tools have built and cached; the environments and results/ stay"
	@echo "make distclean remove everything that make has made, hours of results/ too"
	@echo "PYTHON=... chooses the interpreter, 3.11 or later (now: $(PYTHON))"

# $(call environment,directory,packages): a virtual environment with what builds the extension, and these packages.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	    sys.exit("zerotail needs Python 3.11 or later; got %d.%d: make PYTHON=python3.x" % v if v < (3, 11) else 0)'
	@echo "installing into $(1) ..."
	@$(PYTHON) -m venv $(1)
	@$(1)/bin/python -m pip install -qq -c constraints-dev.txt scikit-build-core nanobind cmake ninja $(2)
endef
# The tools come from the environment and not from a copy of their own, so that the build directory can be used again.
editable := install -qq -c constraints-dev.txt --no-build-isolation

.venv/.installed: $(inputs)
	$(call environment,.venv,jax)  # whose headers its kernels are built with: they must be there before
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python -m pip $(editable) \
	    --config-settings=cmake.define.ZEROTAIL_JAX=ON -e '.[dev]'
	@touch $@

.venv-demo/.installed: $(inputs)
	$(call environment,.venv-demo)
	@PATH="$(CURDIR)/.venv-demo/bin:$$PATH" .venv-demo/bin/python -m pip $(editable) \
	    --config-settings=build-dir=build/demo -e '.[paper]'
	@touch $@

install: .venv/.installed

demo: $(demo)/.installed
	@$(demo)/bin/python examples/demo.py

test: .venv/.installed
	@$(bin)/python -m pytest $(PYTEST_ARGS)

lint: .venv/.installed
	@$(bin)/ruff check --quiet --output-format concise
	@$(bin)/ruff format --quiet --check
	@$(bin)/mypy
	@$(bin)/clang-format --dry-run -Werror $(wildcard core/*.?pp tests/core/*.?pp)

format: .venv/.installed
	@$(bin)/ruff check --quiet --fix
	@$(bin)/ruff format --quiet
	@$(bin)/clang-format -i $(wildcard core/*.?pp tests/core/*.?pp)

bench: .venv/.installed
	@$(bin)/python -m benchmarks.run $(BENCH_ARGS)

sanitize: .venv/.installed
	@$(bin)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(bin)/ninja \
	    -DZEROTAIL_CORE_ONLY=ON -DZEROTAIL_SANITIZE=ON --log-level=WARNING
	@$(bin)/cmake --build build/sanitize -- --quiet
	@$(bin)/ctest --test-dir build/sanitize --output-on-failure

clean:
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . \( -name .venv -o -name .venv-demo -o -name results \) -prune -o \
	    -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-demo results
