#!/usr/bin/env bash
# Tests the package as it would be published, where no OpenMMLab package is: builds the sdist, from it the wheel, installs
# each, and runs the tests that the sdist brings. The environment is built once; the package is built anew each time.
#   tools/test_core.sh           in .venv-core, with torch, torchmetrics and numpy of requirements/lock.txt; without the
#                                tests of the mathematics, which never meet OpenMMLab: `make test` has run them
#   tools/test_core.sh oldest    in .venv-oldest, with the oldest ones that pyproject.toml allows; with these tests, too
#   PYTHON                       the interpreter to build with (default: python3.11)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kind=${1:-core}
tests=(tests/losses tests/metrics tests/samplers tests/class_index tests/utils)
case $kind in
    core) pins=(requirements/lock.txt) ;;
    oldest)
        pins=(requirements/oldest.txt requirements/lock.txt)
        # Not torch.compile, which learned to trace all that is traced here later; nor what is said of the peers: float32
        # of NumPy 2, a warning of torchmetrics' average precision, its groups of metrics with other arguments.
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
constraints() { awk -F== '!/^#/ && !seen[tolower($1)]++' "${pins[@]}"; }  # of two pins of a package, the first

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
# A copy of what git knows: nothing that lies around gets in, and building leaves nothing in the checkout.
git ls-files -z | tar --create --null --files-from - --ignore-failed-read | tar --extract --directory "$run/source"
"$python" -m build --no-isolation --outdir "$run/dist" "$run/source" >"$run/build.log" 2>&1 ||
    { tail -n 40 "$run/build.log" >&2; exit 1; }
rm -rf "$run/source"

# The tests of the sdist run beside no source of the package: what they import is what is installed.
tar --extract --file "$run"/dist/*.tar.gz --directory "$run" --strip-components=1 --wildcards '*/tests' '*/pyproject.toml'
cd "$run"
for distribution in dist/*.tar.gz dist/*.whl; do
    say "$(basename "$distribution"): installed, smoke tests"
    install --no-deps --no-build-isolation --force-reinstall "$distribution"
    "$python" -m pip check
    "$python" -m pytest tests/core
done

say 'the tests of what needs no OpenMMLab'
"$python" -m pytest "${tests[@]}"
