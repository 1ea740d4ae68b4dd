#!/usr/bin/env bash
# Run the tests of Spark's side with other versions of PySpark than the pinned one: scripts/spark_versions.sh 4.1.1 4.3.0
# Each is put into .tidemill/spark-VERSION, 490 MB, and is in front of the environment's own for these tests alone.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=()
for version in "$@"; do
  place=$PWD/.tidemill/spark-$version
  if [ ! -d "$place/pyspark" ]; then
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target "$place.arriving" "pyspark==$version"
    mv "$place.arriving" "$place"
  fi
  echo "PySpark $version"
  # shellcheck disable=SC2086
  PYTHONPATH=$place TIDEMILL_JAVA_CACHE=$place/java .venv/bin/python -m pytest --thorough ${TESTS:-tests/spark/catalog tests/spark/source tests/spark/table tests/spark/messages tests/spark/test_apply.py tests/spark/test_session.py tests/spark/test_found.py} -rs || failed+=("$version")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed with PySpark ${failed[*]}" >&2
  exit 1
fi
