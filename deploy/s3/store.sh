# Sourced by run.sh: an object store of this machine alone, on 127.0.0.1 only, with keys of its own. Ceph's RADOS gateway
# before one monitor and one disk that is a file of the scratch directory (nothing of /etc/ceph or /var/lib/ceph is used),
# or moto's server.

# chosen_store: the one that is installed, in $store.
chosen_store() {
    local command
    store=ceph moto=${MOTO_SERVER:-moto_server}
    for command in ceph ceph-mon ceph-osd ceph-authtool monmaptool radosgw radosgw-admin; do
        command -v "$command" >/dev/null || store=moto
    done
    [ "$store" = ceph ] && return
    command -v "$moto" >/dev/null || skip "Ceph's gateway, and moto_server (pip install 'moto[server]', or MOTO_SERVER)"
    echo "missing: Ceph's gateway; the store is moto's and was not killed"
}

# moto_made: its server runs, on the port in $web.
moto_made() {
    web=$(free_port)
    export AWS_ACCESS_KEY_ID=bcmdist AWS_SECRET_ACCESS_KEY=bcmdist AWS_REGION=us-east-1
    export AWS_ENDPOINT_URL=http://127.0.0.1:$web
    start gateway "$moto" -H 127.0.0.1 -p "$web"
    until_true 120 "the object store answers at $AWS_ENDPOINT_URL" curl -fs "$AWS_ENDPOINT_URL"
}

# ceph_made: the daemons run; the gateway's port is in $web, in $CEPH_CONF all else.
ceph_made() {
    local monitor disk name
    mkdir -p "$scratch/ceph/mon" "$scratch/ceph/osd"
    monitor=$(free_port)
    web=$(free_port)
    export CEPH_CONF="$scratch/ceph/ceph.conf"
    cat >"$CEPH_CONF" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$monitor/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $scratch/ceph/keyring
run dir = $scratch/ceph
admin socket = $scratch/ceph/\$name.asok
log file = $scratch/ceph/\$name.log
mon data = $scratch/ceph/mon
osd data = $scratch/ceph/osd
rgw data = $scratch/ceph
bluestore block size = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon data avail crit = 1
rgw frontends = beast endpoint=127.0.0.1:$web
rgw enable apis = s3
CONF
    ceph-authtool --create-keyring "$scratch/ceph/keyring" --gen-key -n mon. --cap mon 'allow *'
    for name in client.admin client.gateway osd.0; do
        ceph-authtool "$scratch/ceph/keyring" --gen-key -n $name --cap mon 'allow *' --cap osd 'allow *'
    done
    monmaptool --create --fsid "$(ceph-conf --lookup fsid)" --addv a "[v2:127.0.0.1:$monitor/0]" "$scratch/ceph/map"
    ceph-mon --id a --mkfs --monmap "$scratch/ceph/map" --keyring "$scratch/ceph/keyring"
    start mon ceph-mon --id a -f
    disk=$(cat /proc/sys/kernel/random/uuid)
    timeout 60 ceph osd new "$disk"
    ceph-osd --id 0 --mkfs --osd-uuid "$disk"
    start osd ceph-osd --id 0 -f
    until_true 120 "the store's disk is in" disk_is_in
    export AWS_ACCESS_KEY_ID=bcmdist AWS_SECRET_ACCESS_KEY AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$web
    AWS_SECRET_ACCESS_KEY=$(openssl rand -hex 20)
    timeout 120 radosgw-admin user create --uid run --display-name run --access-key "$AWS_ACCESS_KEY_ID" \
        --secret-key "$AWS_SECRET_ACCESS_KEY"
    gateway_started
}

disk_is_in() { ceph osd stat | grep -q '1 up.* 1 in'; }

# gateway_started: it answers; its process id is in $gateway.
gateway_started() {
    start gateway radosgw --name client.gateway -f
    gateway=$pid
    until_true 120 "the object store answers at $AWS_ENDPOINT_URL" curl -fs "$AWS_ENDPOINT_URL"
}

# bucket_made NAME
bucket_made() {
    curl -fsS -X PUT --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$AWS_ENDPOINT_URL/$1"
}
