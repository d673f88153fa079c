# Copies the packages that own some programs of this host, with all that they depend on, into a directory.
# usage: sh -euc "$(cat root.sh)" sh DIRECTORY PATTERN...
tree=$1
shift
owner() {
    # /usr/bin/x may be known as /bin/x.
    { dpkg -S "$1" || dpkg -S "${1#/usr}"; } 2>/dev/null | sed -n 's/^\([^ ,:]*\)[:,].*/\1/p' | head -n 1
}
packages= links=
for pattern in "$@"; do
    for program in $pattern; do
        # No package owns the link of an alternative.
        [ -h "$program" ] && links="$links $program"
        packages="$packages $(owner "$(readlink -f "$program")")"
    done
done
all=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances $packages | grep '^[a-z]' | sed 's/:.*//' | sort -u)
for directory in bin sbin lib lib64; do
    mkdir -p "$tree/usr/$directory"
    ln -s "usr/$directory" "$tree/$directory"
done
mkdir -p "$tree/dev" "$tree/proc" "$tree/sys" "$tree/etc"
for package in $all; do
    # Of a virtual package nothing is installed.
    dpkg -L "$package" 2>/dev/null || true
done | sed 's,^/\(bin\|sbin\|lib\|lib64\)/,/usr/\1/,' | sort -u | while read -r path; do
    case $path in
        /usr/share/doc/* | /usr/share/man/* | /usr/share/locale/* | /usr/share/info/*) ;;
        *) if [ -f "$path" ] || [ -h "$path" ]; then echo "${path#/}"; fi ;;
    esac
done | tar -C / -c --no-recursion -T - | tar -C "$tree" -x
for link in $links; do
    cp -a "$link" "$tree$link"
done
cp -a /etc/alternatives /etc/passwd /etc/group /etc/ld.so.cache "$tree/etc/"
