#!/usr/bin/env bash
# Builds .venv and installs what the machine lacks.
#   scripts/setup.sh        what demos, tests and development need: Python's venv module, Java 17, Maven, and a Kafka broker, a schema
#                           registry, clients of Canal, a MariaDB server and an etcd, which are not started
#   scripts/setup.sh demo   only what `make demo` needs: Python's venv module and Java 17. The whole set-up adds the rest to it.
# With root it installs Debian packages itself; without, it prints the one line that is missing and stops.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-all}
case $mode in
  all) steps=7 extras=dev lock=scripts/setup.lock compiled="tidemill tests bench" ;;
  demo) steps=3 extras=playground lock=scripts/setup-demo.lock compiled=tidemill ;;
  *) echo "scripts/setup.sh: expected no argument, or demo" >&2; exit 2 ;;
esac

wanted=$(cat pyproject.toml constraints.txt scripts/setup*.lock scripts/setup.sh tidemill/playground/programs/*/{pom.xml,checksums.txt} tidemill/spark/catalog/java/io/tidemill/spark/*.java 2>/dev/null | sha256sum)
for stamp in .venv/.tidemill-setup ".venv/.tidemill-setup-$mode"; do  # the whole set-up has all that a demo needs
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x .venv/bin/tidemill ]; then
    exit 0
  fi
done

step=0
say() { # what is done next, and how much of it there is
  step=$((step + 1))
  printf '[%d/%d] %s (%d:%02d so far)\n' "$step" "$steps" "$1" $((SECONDS / 60)) $((SECONDS % 60))
}

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
command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
if [ "$mode" = all ]; then
  command -v javac >/dev/null || missing+=(openjdk-17-jdk-headless)
  command -v mvn >/dev/null || missing+=(maven)
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server-core mariadb-client-core)
  command -v etcd >/dev/null || missing+=(etcd-server)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "Tidemill's set-up needs some Debian packages. Run this, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
    exit 1
  fi
  say "Debian packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  [ -n "$python" ] || python=python3
else
  say "Debian packages: nothing is missing"
fi

say "Python packages into .venv: PySpark and what Tidemill requires, about 600 MB to fetch the first time, 1.1 GB on disk"
[ -x .venv/bin/python ] || "$python" -m venv .venv
# Bytecode is written when a module is imported first, here or later: all that is installed takes a minute, most of it for nothing.
unset PYTHONDONTWRITEBYTECODE
install() { # with pip's own bars on a terminal
  if [ -t 1 ]; then
    .venv/bin/pip install --disable-pip-version-check --no-compile "$@"
  else
    .venv/bin/pip install --disable-pip-version-check --no-compile --progress-bar=off "$@" |
      sed -un 's/^ *\(Downloading .* MB)\|Building wheel for .*\|Installing collected packages\).*/      \1/p' | cut -c1-120
  fi
}
if [ "$(uname -m)" = x86_64 ] && .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
  # Each file by its hash, also of what builds PySpark, which is an archive of sources.
  install --require-hashes --no-deps --requirement deploy/docker/build.lock
  install --require-hashes --no-deps --no-build-isolation --requirement "$lock"
  install --no-deps --no-build-isolation --editable .
else
  # Another Python or machine has other files, of the same versions.
  install --constraint constraints.txt --editable ".[$extras]"
fi

# Also where PYTHONDONTWRITEBYTECODE is set: a run starts many processes, and compiling our modules is a third of what their start costs.
.venv/bin/python -m compileall -q $compiled

if [ "$mode" = demo ]; then
  say "Kernels: compiling, about half a minute of CPU"
  .venv/bin/python -m tidemill.kernels.warm
else
  say "Kernels: compiling, about half a minute of CPU, while the rest is fetched"
  .venv/bin/python -m tidemill.kernels.warm &
  kernels=$!

  .venv/bin/python scripts/catalog_jar.py

  say "Kafka broker: its jars, 120 MB to fetch the first time"
  .venv/bin/python -m tidemill.playground.programs.kafka_broker

  say "Schema registry, of the tests: its jars, 130 MB to fetch the first time"
  .venv/bin/python -m tidemill.playground.programs.schema_registry

  say "Canal's clients, of demo-canal and tests: 30 MB to fetch the first time"
  .venv/bin/python -m tidemill.playground.programs.canal_client
  .venv/bin/python -m tests.support.canal.clients

  wait "$kernels"

  say "The classes of Spark's Java: kept, so that demo and tests start it sooner"
  TIDEMILL_JAVA_CACHE="${TIDEMILL_JAVA_CACHE:-$PWD/.tidemill/java}" .venv/bin/python -m tidemill.spark.java.make_archive
fi

[ "$mode" = all ] && stamp=.venv/.tidemill-setup || stamp=.venv/.tidemill-setup-demo
echo "$wanted" > "$stamp"
printf 'The set-up is complete after %d:%02d\n' $((SECONDS / 60)) $((SECONDS % 60))
