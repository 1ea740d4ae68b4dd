#!/usr/bin/env bash
# Compare what `tidemill replay` writes with golden messages, a protocol after the other; ends with the summary of each.
# MATERIAL is a folder with golden/ticdc and tools/check_golden.py, which are not part of this repository.
set -uo pipefail
cd "$(dirname "$0")/.."
checker="$MATERIAL/tools/check_golden.py"
if [ ! -f "$checker" ]; then
  echo "golden: there is no $checker; name the folder with MATERIAL=…" >&2
  exit 2
fi
failed=0
summaries=()
said=$(mktemp)
trap 'rm -f "$said"' EXIT
for protocol in "$@"; do
  # A line for each run as it ends: a protocol takes minutes.
  .venv/bin/python "$checker" "$MATERIAL/golden/ticdc" --tidemill "$PWD/.venv/bin/tidemill" --protocol "$protocol" 2>&1 | tee "$said" || failed=1
  summaries+=("$(tail -n 1 "$said")")
done
printf '\n%s' "${summaries[@]}"
echo
exit $failed
