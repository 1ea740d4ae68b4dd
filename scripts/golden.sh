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
for protocol in "$@"; do
  lines=$(.venv/bin/python "$checker" "$MATERIAL/golden/ticdc" --tidemill "$PWD/.venv/bin/tidemill" --protocol "$protocol" 2>&1) || failed=1
  printf '%s\n' "$lines"
  summaries+=("$(printf '%s\n' "$lines" | tail -n 1)")
done
printf '\n%s' "${summaries[@]}"
echo
exit $failed
