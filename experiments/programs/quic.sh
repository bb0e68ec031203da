#!/bin/sh
# One end of a QUIC flow, in the roles of quic-interop: a server of a folder, and a client that downloads from it.
# Arguments: client or server, the server's address, its port, and the program; docs/quic.md says where each comes from.
set -eu
role=$1 address=$2 port=$3 program=${4:-ngtcp2}
# AWS-LC, and BoringSSL on Intel's processors, add numbers of RDRAND, which no kernel can replace: this hides it.
export OPENSSL_ia32cap='~0x4000000000000000'
mkdir -p www downloads

serve() {
    case $program in
    ngtcp2) exec /usr/sbin/gtlsserver --quiet --htdocs="$PWD/www" "$address" "$port" test-key.pem test-cert.pem ;;
    quic-go) exec quic-go-server -bind "$address:$port" -www www -cert test-cert.pem -key test-key.pem ;;
    aioquic) exec aioquic-python aioquic_file.py server "$address" "$port" ;;
    quinn) exec quinn-server --listen "$address:$port" --cert test-cert.pem --key test-key.pem www ;;
    picoquic) exec picoquicdemo -p "$port" -w www -c test-cert.pem -k test-key.pem >/dev/null ;;
    s2n-quic | quiche | msquic) exec "$program-file" server "$address" "$port" ;;
    esac
}

fetch() {
    case $program in
    ngtcp2)
        gtlsclient --quiet --exit-on-all-streams-close --download="$PWD/downloads" "$address" "$port" "https://server:$port/file"
        wc -c <downloads/file
        ;;
    quic-go)
        quic-go-client -insecure -q "https://$address:$port/file" >log 2>&1 || cat log >&2
        sed -n 's/.*Response Body: \([0-9]*\) bytes.*/\1/p' log
        ;;
    aioquic) aioquic-python aioquic_file.py client "$address" "$port" ;;
    quinn)
        openssl x509 -in test-cert.pem -outform der -out cert.der
        quinn-client --ca cert.der --host server --bind 0.0.0.0:0 "https://$address:$port/file" | wc -c
        ;;
    picoquic)
        picoquicdemo -a hq-interop -o downloads "$address" "$port" /file >log 2>&1 || cat log >&2
        wc -c <downloads/file
        ;;
    s2n-quic | quiche | msquic) "$program-file" client "$address" "$port" ;;
    esac
}

case $role in
server)
    head -c 1000000 /dev/zero >www/file
    serve
    ;;
client)
    began=$(date +%s%N)
    size=$(fetch)
    ended=$(date +%s%N)
    echo "size=$size completion=$(awk "BEGIN { print ($ended - $began) / 1e9 }")"
    ;;
esac
