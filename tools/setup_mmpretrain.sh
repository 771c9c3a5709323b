#!/usr/bin/env bash
# Build .venv-mmpretrain: MMPretrain and torchvision on top of the packages of .venv.
# They are not in .venv, because MMSegmentation imports MMPretrain if it is installed, and torchvision has no CPU build
# for every torch. A finished environment is not changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=.venv
venv=.venv-mmpretrain
pins=requirements/mmpretrain.txt
done_file=$venv/.done-$(cat "$pins" requirements/lock.txt tools/setup_mmpretrain.sh \
    tools/torchvision_operators.py | sha256sum | cut -d' ' -f1)

if [ -e "$done_file" ] && "$venv/bin/python" -c 'import torch' >/dev/null 2>&1; then
    exit 0
fi
[ -x "$base/bin/python" ] || { echo "[setup] build the main environment first: make env" >&2; exit 1; }
echo "[setup] MMPretrain in $venv"
rm -rf "$venv"
"$base/bin/python" -m venv "$venv"
site_packages=$(cd "$venv"/lib/python*/site-packages && pwd)
# Relative paths to the packages of the main environment and to this one keep the environment movable.
printf '%s\n' "../../../../$base/lib/$(basename "$(dirname "$site_packages")")/site-packages" ../../../.. \
    >"$site_packages/base.pth"
"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps -r "$pins"
cp tools/torchvision_operators.py "$site_packages"
echo 'import torchvision_operators' >"$site_packages/torchvision_operators.pth"
touch "$done_file"
