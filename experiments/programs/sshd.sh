#!/bin/sh
# A server of SSH whose every session is `cat`, for whatever key comes. Its namespace of mounts has a /run of its own.
set -eu
cd "$HOME"
ssh-keygen -q -t ed25519 -N '' -f host_key
cat >accept <<'END'
#!/bin/sh
echo "$1 $2"
END
chmod 700 accept
cat >sshd_config <<END
ListenAddress $BACKCHANNEL_SERVER
Port $BACKCHANNEL_PORT
HostKey $HOME/host_key
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
AuthorizedKeysCommand $HOME/accept %t %k
AuthorizedKeysCommandUser $(id -un)
ForceCommand cat
DisableForwarding yes
END
cat >serve <<'END'
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
exec /usr/sbin/sshd -D -e -f "$HOME/sshd_config"
END
exec unshare --mount sh -eu serve
