#!/bin/sh
# Make what a network of brokers needs to know each other and its clients: a certificate authority, and for each
# broker a certificate, a key, and a token that is bound to the key.
#
#     ./credentials.sh                        # north, mid and south, in ./credentials
#     ./credentials.sh DIRECTORY NAME...      # others
#
# Run it again for new certificates; delete a token first for a new one. Then reload the brokers (SIGHUP).
# Needs openssl and palio. Keep ca.key and signing where no broker runs: who has them is trusted by all.
set -eu
directory=${1:-credentials}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- north mid south
mkdir -p "$directory"
cd "$directory"

[ -e ca.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -addext keyUsage=critical,keyCertSign,cRLSign -subj "/CN=Palio CA" -keyout ca.key -out ca.pem 2>/dev/null
[ -e signing ] || palio keys create signing
touch revoked

for name in "$@"; do
    # Names that clients and brokers call it by; localhost for tries on one machine, and for health checks.
    printf 'subjectAltName = DNS:%s, DNS:localhost, IP:127.0.0.1\n' "$name" > "$name.ext"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
        -keyout "$name.key" -out "$name.csr" 2>/dev/null
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -days 365 -extfile "$name.ext" \
        -out "$name.pem" 2>/dev/null
    rm "$name.csr" "$name.ext"
    [ -e "$name" ] || palio keys create "$name"
    [ -e "$name.token" ] || palio token create "$name" --key signing --broker-key "$name.pub" --expires 365d \
        --allow-publish TRUE --allow-subscribe TRUE --output "$name.token"
done

[ -e operator.token ] || palio token create operator --key signing --allow-publish TRUE \
    --allow-subscribe TRUE --monitor --operate --expires 365d --output operator.token
