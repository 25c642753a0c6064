#!/usr/bin/env bash
# The commands of README.md on a SLURM of one node that this script starts: its daemons in a scratch directory, on
# loopback only. Workers are SLURM jobs; one of them is cancelled in the middle of a fit.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist slurmctld slurmd munged mungekey sbatch squeue scancel
python -c 'import dask_jobqueue' 2>/dev/null || skip "dask-jobqueue (bcmdist[slurm])"
[ "$(id -u)" = 0 ] || skip "root, as which slurmd runs jobs"

# Jobs end before the daemons that watch them: first who submits them again, then they themselves, with their steps,
# which are processes that slurmd has started and let go of.
leave() {
    if [ -n "${cluster:-}" ]; then
        kill -TERM "$cluster" 2>/dev/null || true
        wait "$cluster" 2>/dev/null || true
    fi
    scancel --user "$(id -un)" 2>/dev/null || true
    for _ in $(seq 150); do
        [ -n "$(squeue --noheader 2>/dev/null)$(steps)" ] || break
        sleep 0.2
    done
    for step in $(steps); do kill -KILL "$step" 2>/dev/null || true; done
    finish
}

# steps: ids of the processes of slurmd's steps that read our configuration, and no others.
steps() {
    for folder in /proc/[0-9]*; do
        grep -qsx slurmstepd "$folder/comm" || continue
        grep -qszFx "SLURM_CONF=$scratch/slurm.conf" "$folder/environ" && echo "${folder#/proc/}"
    done
    true
}

node=$(hostname -s)
mkdir -m 755 "$scratch/munge" "$scratch/state" "$scratch/spool" "$scratch/jobs-logs"
mungekey --create --keyfile "$scratch/munge/key"
start munge munged --foreground --force --socket "$scratch/munge/socket" --key-file "$scratch/munge/key" \
    --pid-file "$scratch/munge/pid" --log-file "$scratch/munge/log" --seed-file "$scratch/munge/seed"
export SLURM_CONF="$scratch/slurm.conf"
cat >"$SLURM_CONF" <<CONF
ClusterName=single
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthInfo=socket=$scratch/munge/socket
SlurmUser=root
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc --all) RealMemory=3000
PartitionName=all Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
CONF
trap leave EXIT
until_true 20 "munge answers" munge --socket "$scratch/munge/socket" -n
start slurmctld slurmctld -D
start slurmd slurmd -D
idle() { sinfo --noheader --format %t | grep -qx idle; }
until_true 60 "a SLURM of one node is idle" idle

address_file="$scratch/address"
start cluster python cluster.py --workers 2 --memory 1GB --logs "$scratch/jobs-logs" --worker-host 127.0.0.1 \
    --address-file "$address_file"
cluster=$pid
running() { [ "$(squeue --noheader --states RUNNING | wc -l)" -ge "$1" ]; }
until_true 120 "two workers run as SLURM jobs" running 2
squeue

add_rows "$scratch/train.zarr" 20000 0
bcmdist fit "$scratch/train.zarr" --model "$scratch/model" --query 200 --scheduler "$(cat "$address_file")" --json \
    >"$scratch/fit.json" 2>"$scratch/fit.log" &
fit=$!
pids+=("$fit")
sleep 5
scancel "$(squeue --noheader --states RUNNING --format %i | head -n 1)"
wait "$fit" || { tail -n 20 "$scratch/fit.log" >&2; exit 1; }
echo "ok: fitted by SLURM jobs, one of which was cancelled: $(figure rows <"$scratch/fit.json") rows"
until_true 180 "the job that was cancelled has a successor" running 2
bcmdist score "$scratch/model" "$scratch/train.zarr" --serial
