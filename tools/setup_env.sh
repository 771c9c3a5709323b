#!/usr/bin/env bash
# Build a development environment: pinned packages, mmcv compiled with its ops, this package (editable).
# Finished stages are skipped, and stages of an interrupted run are repeated.
#   tools/setup_env.sh          .venv, with the stock OpenMMLab stack, as in requirements/lock.txt and data.txt
#   tools/setup_env.sh onedl    .venv-onedl, with the OneDL stack of requirements/onedl.txt instead
#   PYTHON                      the interpreter to build with (default: python3.11)
#   MAX_JOBS                    compiler processes for mmcv (default: one per core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lock=requirements/lock.txt
data=requirements/data.txt
stack=${1:-stock}
case $stack in
    stock)
        venv=.venv mmcv=mmcv toolboxes="'mmsegmentation', 'mmdet'" imports='mmseg.models, mmcv.ops, mmdet'
        all_pins() { cat "$lock"; }
        ;;
    onedl)
        # mmdet refuses this mmcv; OneDL's other requirements are in the lock file.
        venv=.venv-onedl mmcv=onedl-mmcv toolboxes="'onedl-mmsegmentation'" imports='mmseg.models, mmcv.ops'
        all_pins() { cat requirements/onedl.txt; grep -v '^mm' "$lock"; }
        ;;
    *) echo "tools/setup_env.sh [onedl], not '$stack'" >&2; exit 2 ;;
esac
python=$venv/bin/python
log=$venv/setup.log
build_tools='^(numpy|setuptools|torch|wheel|ninja)=='

pins() { all_pins | grep -E "$1"; }
say() { printf '[setup] %s\n' "$*"; }
works() { "$python" -c "$1" >/dev/null 2>&1; }

# A change in the files that define the environment repeats the stages.
fingerprint=$({ all_pins; cat "$data" pyproject.toml tools/setup_env.sh; } | sha256sum | cut -d' ' -f1)
done_with() { [ -e "$venv/.stage-$1-$fingerprint" ]; }
finish() { rm -f "$venv/.stage-$1-"*; touch "$venv/.stage-$1-$fingerprint"; }

all_there="import importlib.metadata as m; [m.version(d) for d in ('torch', $toolboxes, 'mmseg_nondecomp')]"
if done_with all && works "$all_there" && compgen -G "$venv/lib/python*/site-packages/mmcv/_ext*" >/dev/null; then
    exit 0
fi

if command -v flock >/dev/null; then
    exec 9>.setup.lock
    flock -n 9 || { say 'another setup is running: waiting for it'; flock 9; }
fi

interpreter=${PYTHON:-python3.11}
command -v "$interpreter" >/dev/null || {
    say "Python 3.11 is needed: '$interpreter' is not on PATH. Set PYTHON=/path/to/python3.11." >&2
    exit 1
}
started=$SECONDS

say '1/4 virtual environment'
if ! works 'import pip'; then
    rm -rf "$venv"
    "$interpreter" -m venv "$venv"
fi
install=("$python" -m pip --disable-pip-version-check --no-input install)

run() {  # run LABEL COMMAND...: show progress, and the output only if the command fails
    local label=$1 pid shown='' now
    shift
    "$@" >"$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null || true' EXIT
    while kill -0 "$pid" 2>/dev/null; do
        sleep 2
        now=$(grep -aoE '^ *\[[0-9]+/[0-9]+\]|^(Collecting|Downloading|Building wheel for|Installing) ?[A-Za-z0-9_.-]*' "$log" | tail -n 1 | tr -s ' ' || true)
        if [ "$now" != "$shown" ]; then
            shown=$now
            if [ -t 1 ]; then
                printf '\r\033[K[setup] %s: %s (%d s)' "$label" "$now" $((SECONDS - started))
            elif [[ $now =~ [05]/ ]]; then
                say "$label: $now ($((SECONDS - started)) s)"
            fi
        fi
    done
    trap - EXIT
    [ -t 1 ] && printf '\r\033[K'
    wait "$pid" || { tail -n 60 "$log" >&2; say "$label failed; the whole log is $log" >&2; exit 1; }
}

say '2/4 torch and the build tools'
if ! done_with base || ! works 'import torch, numpy, setuptools, ninja'; then
    # shellcheck disable=SC2046
    run 'torch' "${install[@]}" $(pins "$build_tools")
    finish base
fi

say '3/4 mmcv with compiled ops (5 to 10 minutes the first time)'
if ! done_with mmcv || ! works 'import mmcv._ext'; then
    export MMCV_WITH_OPS=1 MAX_JOBS=${MAX_JOBS:-$(nproc)}
    build=("${install[@]}" -v --no-build-isolation)
    run 'mmcv' "${build[@]}" "$(pins "^$mmcv==")"
    # pip caches built wheels: one without the ops has to be rebuilt.
    works 'import mmcv._ext' || run 'mmcv' "${build[@]}" --no-cache-dir --force-reinstall --no-deps "$(pins "^$mmcv==")"
    works 'import mmcv._ext' || { say "mmcv was built without its ops; the log is $log" >&2; exit 1; }
    finish mmcv
fi

say '4/4 the OpenMMLab stack, the tools and this package'
all_pins >"$venv/pins.txt"
run 'packages' "${install[@]}" -r "$venv/pins.txt"
if [ "$stack" = stock ]; then
    run 'data' "${install[@]}" --no-deps -r "$data"
fi
run 'mmseg_nondecomp' "${install[@]}" --no-build-isolation --no-deps -e .
"$python" -c "import mmseg_nondecomp, $imports"
finish all
say "ready in $((SECONDS - started)) s: $venv"
