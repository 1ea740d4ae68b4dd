#!/usr/bin/env bash
# Builds .venv and installs what the machine lacks: Python's venv module, Java 17, Maven, and, for demo and tests, a Kafka broker, a
# schema registry, clients of Canal, a MariaDB server and an etcd, which are not started.
# With root it installs Debian packages itself; without, it prints the one line that is missing and stops.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.tidemill-setup
wanted=$(cat pyproject.toml constraints.txt scripts/setup.sh tidemill/playground/programs/*/pom.xml tidemill/spark/catalog/java/io/tidemill/spark/*.java 2>/dev/null | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x .venv/bin/tidemill ]; then
  exit 0
fi

python=
for candidate in python3.11 python3.12 python3.13 python3; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done

missing=()
[ -n "$python" ] || missing+=(python3)
if [ -z "$python" ] || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then missing+=(python3-venv); fi
if ! command -v java >/dev/null || ! command -v javac >/dev/null; then missing+=(openjdk-17-jdk-headless); fi
command -v mvn >/dev/null || missing+=(maven)
command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server-core mariadb-client-core)
command -v etcd >/dev/null || missing+=(etcd-server)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "Tidemill's set-up needs some Debian packages. Run this, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
    exit 1
  fi
  echo "Installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  [ -n "$python" ] || python=python3
fi

echo "Building .venv (PySpark is large: a minute or two)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'

# Also where PYTHONDONTWRITEBYTECODE is set: a run starts many processes, and compiling our modules is a third of what their start costs.
.venv/bin/python -m compileall -q tidemill tests bench

echo "Compiling the kernels, while the rest is fetched"
.venv/bin/python -m tidemill.kernels.warm &
kernels=$!

.venv/bin/python scripts/catalog_jar.py

echo "Fetching the jars of the Kafka broker"
.venv/bin/python -m tidemill.playground.programs.kafka_broker

echo "Fetching the schema registry of the tests"
.venv/bin/python -m tidemill.playground.programs.schema_registry

echo "Fetching Canal's clients of demo and tests"
.venv/bin/python -m tidemill.playground.programs.canal_client
.venv/bin/python -m tests.support.canal.clients

wait "$kernels"

echo "Keeping the classes of Spark's Java, so that demo and tests start it sooner"
TIDEMILL_JAVA_CACHE="${TIDEMILL_JAVA_CACHE:-$PWD/.tidemill/java}" .venv/bin/python -m tidemill.spark.java.make_archive

echo "$wanted" > "$stamp"
