#!/usr/bin/env bash
# Test the package as published, without OpenMMLab: build the sdist and from it the wheel, install each, and run the
# tests of the sdist. The environment is built once, the package each time.
#   tools/test_core.sh           in .venv-core, with torch, torchmetrics and numpy of requirements/lock.txt; without the
#                                tests of the mathematics, which `make test` runs and which do not involve OpenMMLab
#   tools/test_core.sh oldest    in .venv-oldest, with the oldest ones that pyproject.toml allows, and with these tests
#   PYTHON                       the interpreter to build with (default: python3.11)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kind=${1:-core}
tests=(tests/losses tests/metrics tests/samplers tests/class_index tests/utils)
case $kind in
    core) pins=(requirements/lock.txt) ;;
    oldest)
        pins=(requirements/oldest.txt requirements/lock.txt)
        # Excluded: torch.compile, which traces less in old versions, and statements about peers: float32 in NumPy 2, a
        # warning of torchmetrics' average precision, its groups of metrics with other arguments.
        others='recursion_of_the_paper_loses or labels_it_is_the_macro_average or metrics_of_one_state_share_it'
        tests+=(tests/functional -k "not compiles and not ($others)")
        ;;
    *) echo "tools/test_core.sh [oldest], not '$kind'" >&2; exit 2 ;;
esac
venv=$PWD/.venv-$kind
python=$venv/bin/python
run=$venv/run
say() { printf '[%s] %s\n' "$kind" "$*"; }
install() { "$python" -m pip --disable-pip-version-check --no-input install --quiet --quiet "$@"; }
constraints() { awk -F== '!/^#/ && !seen[tolower($1)]++' "${pins[@]}"; }  # the first of two pins of a package

fingerprint=$(cat "${pins[@]}" requirements/core.txt | sha256sum | cut -d' ' -f1)
if [ ! -e "$venv/.done-$fingerprint" ] || ! "$python" -c 'import torch' >/dev/null 2>&1; then
    say "environment in $(basename "$venv")"
    "$python" -c 'import pip' >/dev/null 2>&1 || { rm -rf "$venv"; "${PYTHON:-python3.11}" -m venv "$venv"; }
    rm -f "$venv"/.done-*
    constraints >"$venv/constraints.txt"
    install --requirement requirements/core.txt --constraint "$venv/constraints.txt"
    touch "$venv/.done-$fingerprint"
fi

say 'sdist, and the wheel from it'
rm -rf "$run"
mkdir -p "$run/source"
# Build from a copy of the tracked files, which excludes untracked files and keeps the checkout clean.
git ls-files -z | tar --create --null --files-from - --ignore-failed-read | tar --extract --directory "$run/source"
"$python" -m build --no-isolation --outdir "$run/dist" "$run/source" >"$run/build.log" 2>&1 ||
    { tail -n 40 "$run/build.log" >&2; exit 1; }
rm -rf "$run/source"

# Without the package's source next to the tests they import the installed package.
tar --extract --file "$run"/dist/*.tar.gz --directory "$run" --strip-components=1 --wildcards '*/tests' '*/pyproject.toml'
cd "$run"
for distribution in dist/*.tar.gz dist/*.whl; do
    say "$(basename "$distribution"): installed, smoke tests"
    install --no-deps --no-build-isolation --force-reinstall "$distribution"
    "$python" -m pip check
    "$python" -m pytest tests/core
done

say 'tests without OpenMMLab'
"$python" -m pytest "${tests[@]}"
