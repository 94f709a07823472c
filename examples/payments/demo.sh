#!/usr/bin/env bash
# The payments example from end to end, in a fresh directory: 200,000 events, one in a hundred of them bad.
# Everything it starts, it stops: also when a step fails or you press Ctrl-C.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${DEMO_DIR:-$root/build/demo}
export PATH="$root/.venv/bin:$PATH" PENSTOCK_LOCAL=local

step() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }
stop() { cd "$work" 2>/dev/null && step penstock down; }

if [ -d "$work/local" ]; then (cd "$work" && penstock down >/dev/null 2>&1) || true; fi
rm -rf "$work"
mkdir -p "$work"
cp -r "$root/examples/payments/payments.yaml" "$root/examples/payments/schemas" "$work"
cd "$work"
trap stop EXIT

step penstock check payments.yaml
step penstock up
KAFKA_BOOTSTRAP=$(penstock up --json 2>/dev/null | python -c 'import json, sys; print(json.load(sys.stdin)["bootstrap"])')
export KAFKA_BOOTSTRAP
step penstock apply payments.yaml
step penstock produce payments.yaml --count 200000 --poison 0.01 --seed 7 --ledger acknowledged.arrow
step penstock run payments.yaml --until-caught-up
step penstock dlq stats payments.yaml
step penstock verify payments.yaml
