#!/bin/sh
# nginx in the foreground, with all of its files in this folder.
set -eu
head -c 1000000 /dev/zero >file
cat >nginx.conf <<END
daemon off;
user $(id -un);
pid $HOME/nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen $BACKCHANNEL_SERVER:$BACKCHANNEL_PORT;
        root $HOME;
    }
}
END
exec nginx -p "$HOME" -e stderr -c "$HOME/nginx.conf"
