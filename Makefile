# `make demo` and `make test` work on a fresh machine: both run the set-up first.
.PHONY: setup setup-demo demo demo-kafka demo-mysql demo-canal demo-binlog test test-fast test-all collect recordings realpd realcdc realdb golden chaos simulate fuzz-api views-fuzz chaos-ha chaos-mysql chaos-binlog soak cluster outage lint types quick bench bench-quick proto wheel lower-ends spark-versions dashboards page deploy pin-images site options clean
# The tests start hundreds of processes: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# Where the set-up keeps the classes of Spark's Java
export TIDEMILL_JAVA_CACHE ?= $(CURDIR)/.tidemill/java
PYTHON := .venv/bin/python
# Temporary files of tests: in memory, where syncing one takes no time. They sync some hundred thousand.
SCRATCH = $(or $(TMPDIR),$(shell scripts/scratch.sh))
TESTS = TMPDIR=$(SCRATCH) OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest --dist loadfile -o tmp_path_retention_policy=failed
MATERIAL ?= ../shared
PROTOCOLS ?= open-protocol canal canal-json avro csv simple dispatch

setup:
	@scripts/setup.sh

# Only what `make demo` needs. `make setup` adds the rest.
setup-demo:
	@scripts/setup.sh demo

demo: setup-demo
	@.venv/bin/tidemill demo

demo-kafka: setup
	@.venv/bin/tidemill demo --kafka

demo-mysql: setup
	@.venv/bin/tidemill demo --mysql

demo-canal: setup
	@.venv/bin/tidemill demo --canal

demo-binlog: setup
	@.venv/bin/tidemill demo --binlog

# Three at a time, also on two cores, and a file's tests in one process: most of the time goes by waiting for processes, brokers and clocks.
test: setup
	$(TESTS) -n 3

# That all tests can be collected. It leaves them compiled: in a new checkout each worker of `make test` would do that for itself.
collect: setup
	@mkdir -p .tidemill
	@$(PYTHON) -m pytest --collect-only -q > .tidemill/collected.log || { tail -40 .tidemill/collected.log; exit 1; }

# All tests, also those with the marker `thorough`: further settings, seeds and storms. Before a release, and after work on what they are about.
test-all: setup
	$(TESTS) -n 3 --thorough

# What a developer runs between edits: no Spark, no broker, nothing slow
test-fast: setup
	$(TESTS) -n 4 -m "not slow and not spark and not kafka"

# The PD client and a whole capture against real PD servers, if this machine has a pd-server (TIDEMILL_PD_SERVER or PATH).
realpd: setup
	$(PYTHON) -m pytest --thorough tests/realpd -rs

# TiCDC's own cdc cli, kafka-consumer and storage-consumer, whichever are on PATH (or named by TIDEMILL_CDC, TIDEMILL_CDC_KAFKA_CONSUMER, TIDEMILL_CDC_STORAGE_CONSUMER)
realcdc: setup
	$(PYTHON) -m pytest --thorough tests/realcdc -rs
# The MySQL sink, diff, redo apply and consume into a real TiDB and a MySQL, those of them that this machine has (TIDEMILL_TIDB_SERVER,
# TIDEMILL_MYSQL_SERVER or PATH). Debian has no MySQL in its stable releases: scripts/mysql_from_debian.sh FOLDER gets one.
realdb: setup
	TIDEMILL_DATABASES="$${TIDEMILL_DATABASES:-tidb mysql}" $(PYTHON) -m pytest --thorough tests/sinks/mysql tests/diff/test_diff.py \
		tests/changefeed/test_redo.py tests/consumer/test_database.py tests/integration/test_keys_by_every_door.py -rs

# Every protocol in every configuration against what TiCDC's own code wrote: make golden MATERIAL=../shared PROTOCOLS="avro csv"
golden: setup
	@MATERIAL=$(MATERIAL) scripts/golden.sh $(PROTOCOLS)

# Kill everything at random, many times over: make chaos ROUNDS=20 SEED=7
chaos: setup
	@seed=$${SEED:-$$(shuf -i 1-1000000 -n 1)} rounds=$${ROUNDS:-10}; echo "SEED=$$seed ROUNDS=$$rounds"; \
	SEED=$$seed ROUNDS=$$rounds $(PYTHON) -m pytest --thorough tests/chaos/test_chaos.py -x -s

# Two servers of one log, whose leaders are killed, frozen, cut off and resign: make chaos-ha ROUNDS=100 SEED=7 PLACE=etcd
chaos-ha: setup
	@seed=$${SEED:-$$(shuf -i 1-1000000 -n 1)} rounds=$${ROUNDS:-10}; place=$${PLACE:-folder}; \
	echo "SEED=$$seed ROUNDS=$$rounds PLACE=$$place"; \
	SEED=$$seed ROUNDS=$$rounds PLACE=$$place $(PYTHON) -m pytest --thorough tests/chaos/test_servers_chaos.py -x -s

# The same into a MariaDB, compared by tidemill diff: make chaos-mysql ROUNDS=20 SEED=7 WORKLOADS="mixed bank soak"
chaos-mysql: setup
	@seed=$${SEED:-$$(shuf -i 1-1000000 -n 1)} rounds=$${ROUNDS:-10}; echo "SEED=$$seed ROUNDS=$$rounds"; \
	SEED=$$seed ROUNDS=$$rounds $(PYTHON) -m pytest --thorough tests/chaos/test_database_chaos.py -x -s

# Binlogs: Pumps, a Drainer into a MariaDB and a run, all killed, paused, joined: make chaos-binlog ROUNDS=20 SEED=7 WORKLOADS="mixed bank"
chaos-binlog: setup
	@seed=$${SEED:-$$(shuf -i 1-1000000 -n 1)} rounds=$${ROUNDS:-10}; echo "SEED=$$seed ROUNDS=$$rounds"; \
	SEED=$$seed ROUNDS=$$rounds $(PYTHON) -m pytest --thorough tests/chaos/test_binlog_chaos.py -x -s

# Requests that schemathesis makes of the OpenAPI document: make fuzz-api SEEDS=20 SEED=0
fuzz-api: setup
	@SEED=$${SEED:-0} SEEDS=$${SEEDS:-20} TMPDIR=$(SCRATCH) $(PYTHON) -m pytest --thorough -n 2 tests/server/api/test_schemathesis.py

# Random queries of Spark's grammar over random histories, a view beside Spark itself: make views-fuzz SEEDS=1000 SEED=0
views-fuzz: setup
	@SEED=$${SEED:-0} SEEDS=$${SEEDS:-1000} TMPDIR=$(SCRATCH) $(PYTHON) -m pytest --thorough -s --timeout 0 tests/views/test_generated.py

# Drivers that freeze, die and lose answers at any effect, under every sink that has a simulation: make simulate SEEDS=10000 SEED=0
simulate: setup
	@SEED=$${SEED:-0} SEEDS=$${SEEDS:-1000} TMPDIR=$(SCRATCH) OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest --thorough -n 2 --dist loadfile tests/simulate

# The tests of Spark's side with the other versions that pyproject.toml takes: make spark-versions SPARKS=4.3.0
spark-versions: setup
	TMPDIR=$(SCRATCH) scripts/spark_versions.sh $(or $(SPARKS),4.1.1 4.3.0)

# One capture of a stormy playground after the other: make soak SEED=7 ROUNDS=3 SECONDS=120, or make soak MINUTES=30
soak: setup
	@seed=$${SEED:-$$(shuf -i 1-1000000 -n 1)} minutes=$${MINUTES:-0} rounds=$${ROUNDS:-3} seconds=$${SECONDS:-60}; \
	[ "$$minutes" = 0 ] || rounds=0; echo "SEED=$$seed ROUNDS=$$rounds MINUTES=$$minutes SECONDS=$$seconds"; \
	mkdir -p .tidemill; SEED=$$seed ROUNDS=$$rounds MINUTES=$$minutes SECONDS=$$seconds \
	$(PYTHON) -m pytest --thorough tests/soak/test_soak.py -x -s --basetemp=.tidemill/soak

# The recording of one large transaction as a whole, 86 MB of messages: make recordings MATERIAL=../shared
recordings: setup
	MATERIAL=$(abspath $(MATERIAL)) $(PYTHON) -m pytest --thorough tests/capture/test_recordings.py -k large

# Groups of a capture, deliveries and DataFrames, on a Spark cluster of this machine, whose executors and workers are killed, frozen and cut off
cluster: setup
	@CLUSTER=1 $(PYTHON) -m pytest --thorough tests/integration/test_groups_spark.py tests/integration/test_delivery_cluster.py \
		tests/integration/test_frames_cluster.py -x -s

# A Kafka that is away for ten minutes under a run
outage: setup
	@OUTAGE_S=$${OUTAGE_S:-600} $(PYTHON) -m pytest --thorough tests/integration/test_long_outage.py -x -s

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup
	.venv/bin/mypy

# What fails soonest: form, types, layers, wording, links. Run it before every commit.
quick: lint types
	$(PYTHON) -m pytest -q tests/docs tests/test_layers.py

# docs/ as a site with search, in .tidemill/site; a link that leads nowhere is an error. Its packages are in an environment of their own.
site:
	@[ -x .tidemill/site-venv/bin/mkdocs ] || { mkdir -p .tidemill && python3 -m venv .tidemill/site-venv; }
	.tidemill/site-venv/bin/pip install --quiet --disable-pip-version-check $$(sed -n 's/^docs = \[\(.*\)\]$$/\1/p' pyproject.toml | tr -d '",')
	NO_MKDOCS_2_WARNING=1 .tidemill/site-venv/bin/mkdocs build --strict

# After a change of an option: the page of all options
options: setup
	$(PYTHON) scripts/options.py

bench: setup
	$(PYTHON) -m bench

# That the benchmarks and their page run, with few rows: no figure is judged
bench-quick: setup
	@mkdir -p .tidemill
	$(PYTHON) -m bench --quick --only encode capture growth month start --page .tidemill/bench-page.html > .tidemill/bench-quick.log 2>&1 \
		|| { tail -40 .tidemill/bench-quick.log; exit 1; }

proto: setup
	$(PYTHON) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. tidemill/wire/*.proto

# The lower end of each range of pyproject.toml: every module is imported, and tests without Spark and Kafka run. Takes some minutes.
LOWER_TESTS := tests/tidb tests/protocols tests/kernels/decode tests/kernels/templates tests/changelog tests/config tests/metrics tests/registry
lower-ends: setup
	@[ -x .venv-lower/bin/python ] || $(PYTHON) -m venv .venv-lower
	@$(PYTHON) scripts/lower_ends.py > .venv-lower/requirements.txt
	.venv-lower/bin/pip install -q -r .venv-lower/requirements.txt pytest hypothesis pytest-timeout pytest-xdist psutil fastavro
	.venv-lower/bin/pip install -q --no-deps -e .
	.venv-lower/bin/python scripts/import_all.py
	.venv-lower/bin/python -m pytest -n 2 --dist loadfile -m "not spark and not kafka and not slow" $(LOWER_TESTS)

# The dashboard and the alert rules against a real Prometheus: Debian's package prometheus, which the set-up does not install
dashboards: setup
	@command -v prometheus promtool >/dev/null || { echo "Install Debian's package prometheus first"; exit 1; }
	$(PYTHON) -m pytest tests/metrics/test_dashboard.py -rs

# The web page in a headless Chromium, with pictures of it to look at: Debian's package chromium, which the set-up does not install
page: setup
	@command -v chromium chromium-browser google-chrome >/dev/null || [ -n "$$TIDEMILL_CHROMIUM" ] || \
	{ echo "Install Debian's package chromium first, or set TIDEMILL_CHROMIUM to the path of a Chromium"; exit 1; }
	TIDEMILL_SCREENSHOTS=$${SCREENSHOTS:-.tidemill/screenshots} $(PYTHON) -m pytest tests/server/page tests/server/api/test_page.py -rs
	@echo "Look at the pictures in $${SCREENSHOTS:-.tidemill/screenshots}"

wheel: setup
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(PYTHON) -m build --wheel

# Of the image and of what the wheel requires: CycloneDX
sbom: setup
	mkdir -p dist
	$(PYTHON) scripts/bill.py cyclonedx > dist/tidemill.cdx.json

# After a change of pyproject.toml or constraints.txt: the hashes of what the image installs, and the licences
lock: setup
	$(PYTHON) scripts/lock.py
	$(PYTHON) scripts/bill.py licences > THIRD_PARTY.md

# The digests of base images, from their registry
pin-images: setup
	$(PYTHON) scripts/pin_images.py

clean:
	rm -rf build dist *.egg-info .tidemill
