# `make demo` and `make test` work on a fresh machine: both run the set-up first.
.PHONY: setup demo demo-kafka test lint types bench proto wheel clean
PYTHON := .venv/bin/python

setup:
	@scripts/setup.sh

demo: setup
	@.venv/bin/tidemill demo

demo-kafka: setup
	@.venv/bin/tidemill demo --kafka

test: setup
	$(PYTHON) -m pytest

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup
	.venv/bin/mypy

bench: setup
	$(PYTHON) -m bench

proto: setup
	$(PYTHON) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. tidemill/wire/*.proto

wheel: setup
	$(PYTHON) -m build --wheel

clean:
	rm -rf build dist *.egg-info .tidemill
