#!/usr/bin/env bash
# The second step of action.yml: runs `dslint check` with what the inputs say. They come as variables, so that no input is ever a command.
# Python runs isolated (-I): it imports nothing from the checkout, whatever PYTHONPATH says.
set -euo pipefail
set -f # words are split at blanks, and no pattern is expanded: dslint does that

options=(--output-format github)
for name in world-size integration deepspeed nodes tensor-parallel pipeline-parallel sequence-parallel \
    gpu gpu-memory host-memory model checkpoint fail-on baseline; do
    variable=$(printf %s "$name" | tr a-z- A-Z_)
    [ -z "${!variable}" ] || options+=("--$name" "${!variable}")
done
for release in $PACKAGES; do options+=(--package "$release"); done
for pair in $ENVIRONMENT; do options+=(--env "$pair"); done
[ "$STRICT" != true ] || options+=(--strict)
[ -z "$SARIF" ] || options+=(--output "sarif=$SARIF")
[ "$SUMMARY" != true ] || options+=(--output "markdown=$RUNNER_TEMP/dslint-summary.md")
# shellcheck disable=SC2206 # meant to be split
more=($MORE) paths=($PATHS)

if [ "$CHANGED_ONLY" = true ] && [ -n "$BASE" ]; then
  # The checkout may contain only the merge commit: fetch the commit to compare with.
  git cat-file -e "$BASE^{commit}" 2>/dev/null || git fetch --quiet --depth=1 origin "$BASE"
  git diff --name-only --no-renames --diff-filter=d -z "$BASE" HEAD -- "${paths[@]}" > "$RUNNER_TEMP/dslint-changed"
  options+=(--files-from "$RUNNER_TEMP/dslint-changed")
  paths=()
fi

code=0
"$PYTHON" -I -m deepspeed_lint check "${options[@]}" ${more[@]+"${more[@]}"} -- ${paths[@]+"${paths[@]}"} || code=$?
if [ "$SUMMARY" = true ] && [ -f "$RUNNER_TEMP/dslint-summary.md" ]; then
  cat "$RUNNER_TEMP/dslint-summary.md" >> "$GITHUB_STEP_SUMMARY"
fi
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
exit "$code"
