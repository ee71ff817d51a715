#!/usr/bin/env bash
# The environment of action.yml. `name` prints the key of its cache; `install` makes the environment unless the cache has brought it.
#
# The working directory is the checkout, which may be a stranger's. So Python imports nothing from there (-I), and what pip starts,
# which has no -I, runs in another folder and without the variables that name places to import from.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP
cd "$RUNNER_TEMP"

environment=$RUNNER_TEMP/dslint

name() {
    # A virtual environment works only where it was made: with the same Python, in the same folder. Files of dslint are named by what they say.
    "$PYTHON" -I - "$ACTION" "$environment" >> "$GITHUB_OUTPUT" << 'PROGRAM'
import hashlib, pathlib, platform, sys

root, environment = map(pathlib.Path, sys.argv[1:])
seen = hashlib.sha256("\n".join([sys.version, sys.executable, platform.platform(), str(environment)]).encode())
for part in ("pyproject.toml", "setup.py", "deepspeed_lint.py", "dslint", "rules", "schemas"):
    for file in sorted([root / part] if (root / part).is_file() else (root / part).rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            seen.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
print(f"key=dslint-{seen.hexdigest()[:32]}")
PROGRAM
}

install() {
    if ! "$(programs)/python" -I -m deepspeed_lint --version > /dev/null 2>&1; then
        rm -rf "$environment"
        "$PYTHON" -I -m venv "$environment"
        "$(programs)/python" -I -m pip install --quiet --disable-pip-version-check "$ACTION"
    fi
    echo "python=$(programs)/python" >> "$GITHUB_OUTPUT"
}

programs() {
    if [ -d "$environment/Scripts" ]; then echo "$environment/Scripts"; else echo "$environment/bin"; fi
}

"$1"
