#!/bin/bash
# A package's life below a root of its own: `roots.sh deb|rpm FILE BINARY DIRECTORY [NEXT-FILE]`, where BINARY is the
# wherry in the file. Run by test.sh, as root.
#
# The root has a shell, a few programs, and the libraries that wherry needs. What the scripts would ask of systemd is written down
# by stand-ins (in /calls); wherry itself is the real one, without a runtime. Nothing outside of the directory is touched.
set -euo pipefail

kind=$1
package=$2
binary=$3
root=$4
mkdir -p "$root"

fail() {
	printf 'FAILED: %s\n' "$*" >&2
	printf -- '--- it said\n%s\n--- and asked systemd\n%s\n' "$said" "$(cat "$root/calls" 2>/dev/null)" >&2
	exit 1
}

# A program of this machine, with its libraries, where they are.
carry() {
	local program library
	for program; do
		program=$(command -v "$program") || { echo "no $program here" >&2; exit 1; }
		install -D -m 755 "$program" "$root$program"
		ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
			[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
		done
	done
}

# Written down, and done as /answers/NAME says, else with success.
stand_in() {
	local name
	for name; do
		install -D -m 755 /dev/stdin "$root/usr/bin/$name" <<-'END'
			#!/bin/sh
			echo "${0##*/} $*" >>/calls
			if [ -e "/answers/$1" ]; then exit "$(cat "/answers/$1")"; fi
		END
	done
}

make_root() {
	mkdir -p "$root"/{etc,dev,tmp,proc,answers,run/systemd/system,var/lib/dpkg/info,var/lib/dpkg/updates,usr/lib,usr/bin,usr/sbin}
	# As the distribution has it.
	for directory in bin sbin lib lib64; do
		mkdir -p "$root/usr/$directory"
		ln -s "usr/$directory" "$root/$directory"
	done
	touch "$root/var/lib/dpkg/status" "$root/calls"
	cp /etc/os-release "$root/etc/"
	carry sh rm rmdir mkdir mktemp cp cat sed install timeout
	# What is linked with libdbus, libc and libgcc: the binary itself is not there yet.
	local library
	ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
		[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
	done
	stand_in systemctl systemd-tmpfiles deb-systemd-helper deb-systemd-invoke
}

said=
# `quietly COMMAND...`: what it says is in $said.
quietly() {
	: >"$root/calls"
	said=$("$@" 2>&1 </dev/null) || fail "$* ends with $?"
}

says() { grep -qF -- "$1" <<<"$said" || fail "it does not say: $1"; }
says_not() { ! grep -qF -- "$1" <<<"$said" || fail "it says: $1"; }
asks() { grep -qxF -- "$1" "$root/calls" || fail "it does not ask: $1"; }
asks_not() { ! grep -qF -- "$1" "$root/calls" || fail "it asks: $1"; }
is_there() { [ -e "$root/$1" ] || fail "$1 is not there"; }
is_gone() { [ ! -e "$root/$1" ] || fail "$1 is there"; }
says_config() { grep -qxF -- "$1" "$root/etc/wherry/config.yaml" || fail "the configuration is another one"; }

# A later version of a deb, with another default configuration.
next_deb() {
	local tree=$root.tree
	rm -rf "$tree"
	dpkg-deb -R "$package" "$tree"
	sed -i "s/^Version: .*/&.$1/" "$tree/DEBIAN/control"
	echo "# Of version $1." >>"$tree/etc/wherry/config.yaml"
	dpkg-deb --root-owner-group -b "$tree" "$root.$1.deb" >/dev/null
	rm -rf "$tree"
}

install_deb() {
	# As unattended upgrades do; nothing is looked for outside of the root.
	quietly dpkg --root="$root" --log="$root/log" --force-depends --force-confdef --force-confold -i "$1"
}

life_of_deb() {
	install_deb "$package"
	asks 'systemd-tmpfiles --create wherry.conf'
	asks 'deb-systemd-helper enable wherry.service'
	asks 'deb-systemd-invoke restart wherry.service'
	says_not 'errors'
	is_there etc/wherry/manifests
	[ "$(chroot "$root" wherry version)" = "wherry $(dpkg-deb -f "$package" Version | sed 's/-.*//')" ] || fail 'it does not run'

	# An upgrade: nothing is stopped, the agent is started anew, and what the operator wrote stays.
	echo 'maxPods: 20' >>"$root/etc/wherry/config.yaml"
	next_deb 2
	install_deb "$root.2.deb"
	asks 'deb-systemd-invoke restart wherry.service'
	asks_not ' stop '
	says_config 'maxPods: 20'
	is_there etc/wherry/config.yaml.dpkg-dist
	grep -q 'Of version 2' "$root/etc/wherry/config.yaml.dpkg-dist" || fail 'the new default is not beside it'

	# One with a broken configuration: it is kept, the error is told, and the agent that runs is left as it is.
	echo 'podsPerCore: many' >>"$root/etc/wherry/config.yaml"
	next_deb 3
	install_deb "$root.3.deb"
	says_config 'podsPerCore: many'
	says '/etc/wherry/config.yaml:'
	says ': podsPerCore: '
	says 'The agent of before goes on'
	asks 'systemctl reload wherry.service'
	asks_not 'restart'
	# Unless none runs: then the service has to try.
	echo 3 >"$root/answers/--quiet"
	next_deb 4
	install_deb "$root.4.deb"
	says 'tries again until they are mended'
	asks 'deb-systemd-invoke restart wherry.service'
	rm "$root/answers/--quiet"
	sed -i '/^podsPerCore: many/d' "$root/etc/wherry/config.yaml"

	# A manifest with an error is no reason to stay behind.
	echo 'kind: [' >"$root/etc/wherry/manifests/broken.yaml"
	next_deb 5
	install_deb "$root.5.deb"
	says_not 'errors'
	asks 'deb-systemd-invoke restart wherry.service'
	rm "$root/etc/wherry/manifests/broken.yaml"

	# Removed: pods go on, and what a purge needs is left.
	mkdir -p "$root/var/lib/wherry/records" "$root/etc/systemd/logind.conf.d"
	echo 0123456789abcdef0123456789abcdef >"$root/var/lib/wherry/id"
	echo '[Login]' >"$root/etc/systemd/logind.conf.d/99-wherry.conf"
	echo '[Login]' >"$root/etc/systemd/logind.conf.d/10-theirs.conf"
	quietly dpkg --root="$root" --log="$root/log" --force-depends -r wherry
	asks 'deb-systemd-invoke stop wherry.service'
	says 'go on running'
	is_gone usr/bin/wherry
	is_there var/lib/wherry/purge/wherry
	is_there var/lib/wherry/purge/config.yaml
	is_there var/lib/wherry/records
	says_config 'maxPods: 20'

	# Installed again: what was left is of no more use.
	install_deb "$package"
	is_gone var/lib/wherry/purge
	is_there var/lib/wherry/id

	# Purged, and the runtime is away: that is said, and all that is ours is gone.
	quietly dpkg --root="$root" --log="$root/log" --force-depends -P wherry
	says 'the container runtime on unix:///run/containerd/containerd.sock'
	says 'pods that are still there'
	asks 'deb-systemd-helper purge wherry.service'
	asks 'systemctl kill --signal=HUP systemd-logind.service'
	is_gone etc/systemd/logind.conf.d/99-wherry.conf
	is_there etc/systemd/logind.conf.d/10-theirs.conf
	nothing_is_left
}

life_of_rpm() {
	local next=$1
	rpmkeys --root "$root" --initdb 2>/dev/null || rpm --root "$root" --initdb
	quietly rpm --root "$root" --nodeps -i "$package"
	asks 'systemd-tmpfiles --create wherry.conf'
	asks 'systemctl --no-reload preset wherry.service'
	asks 'systemctl daemon-reload'
	says_not 'errors'
	is_there etc/wherry/manifests
	quietly rpm --root "$root" -V --nodeps wherry

	echo 'maxPods: 20' >>"$root/etc/wherry/config.yaml"
	quietly rpm --root "$root" --nodeps -U "$next"
	asks 'systemctl try-restart wherry.service'
	asks_not 'preset'
	asks_not 'disable'
	asks_not ' stop '
	says_config 'maxPods: 20'

	echo 'podsPerCore: many' >>"$root/etc/wherry/config.yaml"
	quietly rpm --root "$root" --nodeps -U --oldpackage "$package"
	says_config 'podsPerCore: many'
	says '/etc/wherry/config.yaml:'
	says 'it goes on with the configuration of before'
	asks 'systemctl try-reload-or-restart wherry.service'
	asks_not 'try-restart'
	sed -i '/^podsPerCore: many/d' "$root/etc/wherry/config.yaml"

	mkdir -p "$root/var/lib/wherry/records"
	echo 0123456789abcdef0123456789abcdef >"$root/var/lib/wherry/id"
	quietly rpm --root "$root" --nodeps -e wherry
	asks 'systemctl --no-reload disable --now wherry.service'
	says 'go on running'
	says '/var/lib/wherry/purge/wherry purge --yes --config /var/lib/wherry/purge/config.yaml'
	is_gone usr/bin/wherry
	is_there etc/wherry/config.yaml.rpmsave
	is_there var/lib/wherry/purge/wherry
	# The line that it told works as it stands, but for the runtime, which is not there.
	said=$(chroot "$root" sh -c "$(sed -n 's/^wherry:   \(.*purge --yes.*\)/\1/p' <<<"$said")" 2>&1) && fail 'it purged without a runtime'
	says 'the container runtime on unix://'
	is_there var/lib/wherry/id
}

nothing_is_left() {
	local left
	left=$(find "$root" -name '*wherry*' ! -path "$root/var/lib/dpkg/*" ! -name '*.deb')
	[ -z "$left" ] || fail "left: $left"
}

make_root
case $kind in
deb) life_of_deb ;;
rpm) life_of_rpm "$5" ;;
esac
