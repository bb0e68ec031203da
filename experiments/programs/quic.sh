#!/bin/sh
# One end of a QUIC flow, in the roles of quic-interop: a server of a folder, and a client that downloads from it.
# Arguments: client or server, the server's address, its port.
set -eu
role=$1 address=$2 port=$3
mkdir -p www downloads
case $role in
server)
    head -c 1000000 /dev/zero >www/file
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=server 2>/dev/null
    exec /usr/sbin/gtlsserver --quiet --htdocs="$PWD/www" "$address" "$port" key.pem cert.pem
    ;;
client)
    began=$(date +%s%N)
    gtlsclient --quiet --exit-on-all-streams-close --download="$PWD/downloads" "$address" "$port" "https://server:$port/file"
    ended=$(date +%s%N)
    echo "size=$(wc -c <downloads/file) completion=$(awk "BEGIN { print ($ended - $began) / 1e9 }")"
    ;;
esac
