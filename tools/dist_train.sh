#!/usr/bin/env bash
# Train on several processes: tools/dist_train.sh CONFIG PROCESSES [options of train.py]
# NNODES, NODE_RANK, MASTER_ADDR and PORT describe several machines.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 CONFIG PROCESSES [options of train.py]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=$1 processes=$2
shift 2
exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$processes" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    "$here/train.py" "$config" --launcher pytorch "$@"
