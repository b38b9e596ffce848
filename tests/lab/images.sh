#!/bin/bash
# Builds the images of the demo and the tests without a registry: `images.sh DIR [arm64|armhf]` writes an OCI layout to DIR/oci and
# the same as an archive to DIR/images.tar, for this machine's architecture or for that one. The same inputs give the same bytes.
# Existing images are not built again.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

[ $# = 1 ] || [ $# = 2 ] || die "usage: images.sh DIR [arm64|armhf]"
OTHER=${2:-}
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
OCI=$DIR/oci
if [ -n "$OTHER" ]; then
	BUSYBOX=$("$LAB/cross.sh" "$OTHER" busybox)
	CC=$LAB/cross.sh
	COMPILE=("$LAB/cross.sh" "$OTHER" cc)
	RUN=("$LAB/cross.sh" "$OTHER" run)
else
	BUSYBOX=$(static_busybox) || die "no static busybox (tests/lab/install.sh installs one)"
	CC=${CC:-$(command -v cc || command -v gcc || true)}
	COMPILE=("$CC")
	RUN=()
fi

stamp=$(cat "$LAB/images.sh" "$LAB/pause.c" "$BUSYBOX" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$DIR/stamp" 2>/dev/null)" = "$stamp" ] && [ -f "$DIR/images.tar" ]; then exit 0; fi
if [ -z "$CC" ]; then
	# Without a compiler, use images that were built on another machine.
	[ ! -f "$DIR/images.tar" ] || exit 0
	die "no C compiler (tests/lab/install.sh installs one)"
fi

case ${OTHER:-$(uname -m)} in
x86_64) ARCH='"architecture":"amd64"' ;;
aarch64 | arm64) ARCH='"architecture":"arm64"' ;;
armv7l | armhf) ARCH='"architecture":"arm","variant":"v7"' ;;
armv6l) ARCH='"architecture":"arm","variant":"v6"' ;;
riscv64) ARCH='"architecture":"riscv64"' ;;
i?86) ARCH='"architecture":"386"' ;;
*) die "unknown architecture $(uname -m)" ;;
esac

WORK=$(mktemp -d "$DIR/.work.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
rm -rf "$OCI" "$DIR/stamp"
mkdir -p "$OCI/blobs/sha256"
descriptors=

# Moves a file to the blobs; prints `"digest":"sha256:...","size":N`.
blob() {
	local digest
	digest=$(sha256sum "$1" | cut -d' ' -f1)
	printf '"digest":"sha256:%s","size":%s' "$digest" "$(stat -c %s "$1")"
	mv "$1" "$OCI/blobs/sha256/$digest"
}

# Packs the directory $1 as a layer: sets DIFF_ID and LAYER (a descriptor's fields).
layer() {
	tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -cf "$WORK/layer.tar" .
	DIFF_ID=sha256:$(sha256sum "$WORK/layer.tar" | cut -d' ' -f1)
	gzip -n -9 "$WORK/layer.tar"
	LAYER=$(blob "$WORK/layer.tar.gz")
}

# `image NAME CONFIG`: adds an image with the last layer; CONFIG is the content of "config" in the image config.
image() {
	local config manifest
	printf '{"created":"1970-01-01T00:00:00Z",%s,"os":"linux","config":{%s},"rootfs":{"type":"layers","diff_ids":["%s"]}}' \
		"$ARCH" "$2" "$DIFF_ID" >"$WORK/config.json"
	config=$(blob "$WORK/config.json")
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",%s}]}' \
		"$config" "$LAYER" >"$WORK/manifest.json"
	manifest=$(blob "$WORK/manifest.json")
	descriptors="$descriptors${descriptors:+,}{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",$manifest,\"platform\":{$ARCH,\"os\":\"linux\"},\"annotations\":{\"io.containerd.image.name\":\"$1\",\"org.opencontainers.image.ref.name\":\"$1\"}}"
}

mkdir "$WORK/pause"
"${COMPILE[@]}" -static -Os -s -Wall -Wextra -o "$WORK/pause/pause" "$LAB/pause.c"
layer "$WORK/pause"
image localhost/pause:3.9 '"User":"65535:65535","Entrypoint":["/pause"],"WorkingDir":"/"'

root=$WORK/busybox
mkdir -p "$root"/{bin,etc,home/app,proc,root,sys,tmp,var/www}
chmod 755 "$root" "$root"/{bin,etc,home,home/app,proc,sys,var,var/www}
chmod 700 "$root/root"
chmod 1777 "$root/tmp"
install -m 755 "$BUSYBOX" "$root/bin/busybox"
"${RUN[@]}" "$BUSYBOX" --list | while read -r applet; do
	[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
printf 'root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\napp:x:1000:\nextra:x:1500:app\n' >"$root/etc/group"
# Ends on SIGTERM at once; a shell as process 1 does not do this by itself.
cat >"$root/bin/trap-term" <<'SCRIPT'
#!/bin/sh
trap 'echo terminated; exit 0' TERM
echo "started $*"
while :; do
	sleep 86400 &
	wait $!
done
SCRIPT
chmod 755 "$root/bin/trap-term"
chmod 644 "$root/etc/passwd" "$root/etc/group"
layer "$root"
path='"Env":["PATH=/bin"]'
image localhost/busybox:1.35 "$path,\"Cmd\":[\"sh\"]"
# A container of this image ends on SIGTERM.
image localhost/trap:1 "$path,\"Entrypoint\":[\"/bin/trap-term\"]"
# For tests of command and args with Entrypoint and Cmd, and of the image's environment and directory.
# shellcheck disable=SC2016
image localhost/entrypoint:1 '"Env":["PATH=/bin","FROM_IMAGE=yes"],"Entrypoint":["/bin/sh","-c"],"Cmd":["echo from the image in $(pwd) $FROM_IMAGE"],"WorkingDir":"/var/www"'
# Users by number and by name, for tests of runAsNonRoot.
image localhost/user:1 "$path,\"User\":\"1000:1000\",\"Entrypoint\":[\"/bin/trap-term\"]"
image localhost/named-user:1 "$path,\"User\":\"app\",\"Entrypoint\":[\"/bin/trap-term\"]"

printf '{"imageLayoutVersion":"1.0.0"}' >"$OCI/oci-layout"
printf '{"schemaVersion":2,"manifests":[%s]}' "$descriptors" >"$OCI/index.json"
tar -C "$OCI" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -cf "$WORK/images.tar" .
mv "$WORK/images.tar" "$DIR/images.tar"
printf '%s\n' "$stamp" >"$DIR/stamp"
