#!/usr/bin/env bash
# Write requirements.lock: one version of everything that the product, its extras and its tests need, taken from a fresh
# environment. Versions in the lock stay where they will do; with UPGRADE=1 the newest that pyproject.toml allows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${UPGRADE:-}" ]; then cp requirements.lock "$work/before"; else : > "$work/before"; fi
.venv/bin/python - > "$work/wanted" << 'WANTED'
import tomllib

tables = tomllib.load(open("pyproject.toml", "rb"))
project = tables["project"]
print(*tables["build-system"]["requires"], *project["dependencies"], sep="\n")
for extra in project["optional-dependencies"].values():
    print(*extra, sep="\n")
WANTED
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet -c "$work/before" -r "$work/wanted"
{
  echo "# One version of everything that pyproject.toml leads to, its extras included. Made by \`make lock\`."
  "$work/venv/bin/python" -m pip freeze --all --exclude pip
} > "$work/after"
cp "$work/after" requirements.lock
