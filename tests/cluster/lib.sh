# What the cluster's tests share. Sourced inside of `isolated`, with TRIAX naming the program.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=/mnt/test
mkdir -p $dir
cd $dir
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none TMPDIR=/mnt

failures=0
expect() { # WHAT CONDITION...: notes a failure and goes on
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}
says() { grep -qF -- "$2" "$1" || { echo "--- $1 does not say '$2':"; tail -n 20 "$1"; return 1; }; }
equal() { [ "$1" = "$2" ] || { echo "--- $1 is not $2"; return 1; }; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }' || { echo "--- $1 is more than $2"; return 1; }; }
finish() { [ $failures -eq 0 ] && echo "all passed" || echo "$failures FAILED"; exit $((failures > 0)); }

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { print b - a }'; }
wait_for() { # SECONDS CONDITION...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}

steps() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }
has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
losses() { sed 's/.*"step":\([0-9]*\),"loss":\([^,}]*\).*/\1 \2/' "$1/metrics.jsonl" | sort -n; }
# Both runs have the same steps, and the losses of each agree within 1e-5.
same_losses() {
  paste -d' ' <(losses "$1") <(losses "$2") | awk '
    function size(x) { return x < 0 ? -x : x }
    NF != 4 || $1 != $3 || size($2 - $4) > 1e-5 * size($4) { if (bad++ < 3) print "--- step " $0 }
    END { exit bad > 0 || NR == 0 }'
}

# A job of some seconds: big enough steps to be cut in their middle.
write_job() {
  for i in $(seq 4000); do printf '%s,' $((i * i % 977)); done >$dir/corpus.txt
  cat >$dir/job.yaml <<'JOB'
model: {vocab_size: 256, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 256,
        max_position_embeddings: 64}
output_dir: run
training: {steps: 60, global_batch_size: 8, micro_batch_size: 2, sequence_length: 64, threads: 1}
data: {train: [{path: corpus.txt}]}
lr_schedule: {warmup_steps: 2, decay_steps: 60}
parallel: {tensor: 2, pipeline: 1, data: 2}
checkpoint: {interval: 5}
logging: {tensorboard: false}
JOB
}
