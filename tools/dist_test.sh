#!/usr/bin/env bash
# Evaluate on several processes: tools/dist_test.sh CONFIG CHECKPOINT PROCESSES [options of test.py]
# NNODES, NODE_RANK, MASTER_ADDR and PORT describe several machines.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 CONFIG CHECKPOINT PROCESSES [options of test.py]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=$1 checkpoint=$2 processes=$3
shift 3
exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$processes" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    "$here/test.py" "$config" "$checkpoint" --launcher pytorch "$@"
