#!/usr/bin/env bash
# Makes the virtual environment $1 and installs anabranch into it, editable, with the versions of
# constraints.txt. May be repeated; what is there already is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$1

# The large packages only, rather than pip's flood: a download of minutes should not look like a hang.
progress() {
    sed -un -e 's|^ *Downloading \([^ ]*/\)\?\([^-]*\)-\([0-9.]*[0-9]\)[-.].* (\(.* MB\))$|  \2 \3 (\4)|p' \
        -e 's|^ *Building wheel for \([^ ]*\) .*: started$|  building \1|p'
}

scripts/ensure-python.sh
echo "Installing Python packages (about 500 MB, first time only) …"
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
    -c constraints.txt --editable '.[dev]' | progress
