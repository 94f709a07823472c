.DEFAULT_GOAL := help
.PHONY: help setup check test demo chaos bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Create .venv with the pinned packages; find Java, or install it as root on Debian and Ubuntu
	@scripts/setup

check: setup ## Lint, formatting, types, import layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

# Files by name, so that the short unit tests come last: a file of long tests would leave the other worker idle.
test: check ## Everything CI runs: check, then all tests on real servers
	.venv/bin/penstock jars --record --json >/dev/null
	.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

demo: setup ## Run the payments example end to end
	examples/payments/demo.sh

ROUNDS ?= 15
chaos: setup ## Kill things while they run, and count the records (ROUNDS=6: with fewer kills at random moments)
	rm -f build/chaos.jsonl
	PENSTOCK_CHAOS_ROUNDS=$(ROUNDS) .venv/bin/pytest tests/crash tests/integration/test_stateful_*.py tests/integration/test_conformance*.py \
		tests/integration/test_doctor.py::test_cap_that_is_too_high
	.venv/bin/python -m tests.crash.score

bench: setup ## Measure against the script one would write by hand
	.venv/bin/python -m bench

docs: setup ## Regenerate docs/reference.md from the spec
	.venv/bin/penstock schema --reference > docs/reference.md.new
	mv docs/reference.md.new docs/reference.md

clean: ## Remove .venv and what tools leave behind (local servers keep their data: penstock down --wipe)
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
