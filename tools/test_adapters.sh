#!/usr/bin/env bash
# Test the adapters and their recipes in .venv-adapters: the frameworks of requirements/adapters.txt, without OpenMMLab.
#   tools/test_adapters.sh [ARGUMENT...]    arguments of pytest (default: tests/adapters)
#   PYTHON                                  the interpreter to build with (default: python3.11)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-adapters
python=$venv/bin/python
install() { "$python" -m pip --disable-pip-version-check --no-input install --quiet --quiet "$@"; }

fingerprint=$(cat requirements/{adapters,lock}.txt tools/test_adapters.sh tools/torchvision_operators.py | sha256sum | cut -d' ' -f1)
if [ ! -e "$venv/.done-$fingerprint" ] || ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "[adapters] environment in $venv"
    rm -rf "$venv"
    "${PYTHON:-python3.11}" -m venv "$venv"
    grep -v '^#' requirements/lock.txt >"$venv/constraints.txt"
    install setuptools wheel --constraint "$venv/constraints.txt"
    install --requirement requirements/adapters.txt --constraint "$venv/constraints.txt"
    install --no-deps --no-build-isolation --editable .
    site_packages=$(cd "$venv"/lib/python*/site-packages && pwd)
    cp tools/torchvision_operators.py "$site_packages"
    echo 'import torchvision_operators' >"$site_packages/torchvision_operators.pth"
    touch "$venv/.done-$fingerprint"
fi
[ $# -gt 0 ] || set -- tests/adapters
OMP_NUM_THREADS=1 exec "$python" -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile "$@"
