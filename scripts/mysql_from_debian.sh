#!/usr/bin/env bash
# Puts a MySQL server into FOLDER, for `make realdb`. Debian has one only in its release `sid`, so it is unpacked there with that release's
# own libraries, from the mirror that this machine's apt uses. Nothing of the machine changes. Prints what to set. As root, with debootstrap.
set -euo pipefail

folder=${1:?"usage: scripts/mysql_from_debian.sh FOLDER"}
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "Install Debian's package debootstrap first" >&2; exit 1; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if [ ! -x "$folder/mysqld" ]; then
  mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
  [ -n "$mirror" ] || { echo "apt has no mirror of Debian yet: apt-get update" >&2; exit 1; }
  debootstrap --variant=minbase --include=mysql-server-core sid "$folder" "$mirror"
  rm -f "$folder"/var/cache/apt/archives/*.deb
fi

# The loader's path goes by the architecture.
loader=$(find "$folder"/usr/lib*/ -maxdepth 2 -name 'ld-linux-*.so.*' | head -1)
libraries=$(dirname "$(find "$folder"/usr/lib/*-linux-gnu/ -maxdepth 1 -name 'libc.so.6' | head -1)")
[ -n "$loader" ] && [ -n "$libraries" ] || { echo "$folder has no C library where Debian keeps it" >&2; exit 1; }
cat > "$folder/mysqld" <<SCRIPT
#!/bin/sh
# The server with its own loader and libraries. Which files of options it reads has to be its first argument.
case "\$1" in --no-defaults|--defaults-file=*) first=\$1; shift ;; *) first=--no-defaults ;; esac
exec "$loader" --library-path "$libraries" --argv0 "$folder/usr/sbin/mysqld" "$folder/usr/sbin/mysqld" "\$first" \\
  --basedir="$folder/usr" --lc-messages-dir="$folder/usr/share/mysql" --character-sets-dir="$folder/usr/share/mysql/charsets" "\$@"
SCRIPT
chmod +x "$folder/mysqld"
"$folder/mysqld" --version
echo "TIDEMILL_MYSQL_SERVER=$folder/mysqld"
