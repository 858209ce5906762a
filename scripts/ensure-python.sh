#!/usr/bin/env bash
# After success PYTHON (default: python3) is Python 3.11 or newer and can make virtual
# environments with pip. Installs Debian's package for the latter if that is allowed without asking.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/packages.sh"
python=${PYTHON:-python3}

fail() {
    echo "$1" >&2
    exit 1
}

makes_venvs() {
    # Debian ships `venv` without the pip it bootstraps; only ensurepip tells.
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1
}

command -v "$python" >/dev/null 2>&1 ||
    fail "anabranch needs Python 3.11 or newer, but there is no '$python': install python3, or name another with 'make PYTHON=/path/to/python3'."

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail "'$python' does not run; name another with 'make PYTHON=/path/to/python3'."

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "anabranch needs Python 3.11 or newer, but '$python' is $version: name another with 'make PYTHON=/path/to/python3'."

makes_venvs && exit
echo "Python $version lacks its venv module."
apt_install_first "python$version-venv" python3-venv && makes_venvs && exit
fail "anabranch needs Python's venv module: apt-get install python$version-venv"
