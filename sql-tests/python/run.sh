#!/usr/bin/env bash
# The stock ADBC driver for Flight SQL against a server: `sql-tests/python/run.sh [path of spate]`.
# The driver is put into a virtual environment in the target folder; Python 3.10 or newer is needed.
set -euo pipefail
cd "$(dirname "$0")/../.."

target="${CARGO_TARGET_DIR:-target}"
spate="${1:-$target/debug/spate}"
venv="$target/python"
python="${PYTHON:-python3}"

if ! cmp -s sql-tests/python/requirements.txt "$venv/installed.txt"; then
    "$python" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement sql-tests/python/requirements.txt
    cp sql-tests/python/requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" sql-tests/python/adbc.py "$spate"
