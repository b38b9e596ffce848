#!/bin/bash
# Installs, upgrades and removes a package in a separate root directory: `roots.sh deb|rpm FILE BINARY DIRECTORY [NEXT-FILE]`.
# BINARY is the wherry in the file. test.sh runs this script as root.
#
# The root directory has a shell, a few programs, and the libraries that wherry needs. Stubs record the scripts' calls to systemd
# in /calls. wherry itself is real, without a runtime. Nothing outside of the directory is touched.
set -euo pipefail

kind=$1
package=$2
binary=$3
root=$4
mkdir -p "$root"

fail() {
	printf 'FAILED: %s\n' "$*" >&2
	printf -- '--- output\n%s\n--- calls to systemd\n%s\n' "$said" "$(cat "$root/calls" 2>/dev/null)" >&2
	exit 1
}

# Copies a program of this machine and its libraries to the same paths.
carry() {
	local program library
	for program; do
		program=$(command -v "$program") || { echo "program $program not found" >&2; exit 1; }
		install -D -m 755 "$program" "$root$program"
		ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
			[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
		done
	done
}

# Creates a stub that records each call and exits with the code in /answers/NAME, by default 0.
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
	# The same layout as the distribution's.
	for directory in bin sbin lib lib64; do
		mkdir -p "$root/usr/$directory"
		ln -s "usr/$directory" "$root/$directory"
	done
	touch "$root/var/lib/dpkg/status" "$root/calls"
	cp /etc/os-release "$root/etc/"
	carry sh rm rmdir mkdir mktemp cp cat sed install timeout
	# Copy only the libraries of the binary. The package installs the binary itself.
	local library
	ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
		[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
	done
	stand_in systemctl systemd-tmpfiles deb-systemd-helper deb-systemd-invoke
}

said=
# `quietly COMMAND...`: runs the command; its output is in $said.
quietly() {
	: >"$root/calls"
	said=$("$@" 2>&1 </dev/null) || fail "$* exited with $?"
}

says() { grep -qF -- "$1" <<<"$said" || fail "missing in the output: $1"; }
says_not() { ! grep -qF -- "$1" <<<"$said" || fail "unexpected in the output: $1"; }
asks() { grep -qxF -- "$1" "$root/calls" || fail "missing call: $1"; }
asks_not() { ! grep -qF -- "$1" "$root/calls" || fail "unexpected call: $1"; }
is_there() { [ -e "$root/$1" ] || fail "$1 does not exist"; }
is_gone() { [ ! -e "$root/$1" ] || fail "$1 still exists"; }
says_config() { grep -qxF -- "$1" "$root/etc/wherry/config.yaml" || fail "the configuration has changed"; }

# Creates a later version of the deb with another default configuration.
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
	# The options of unattended upgrades; dpkg reads nothing outside of the root directory.
	quietly dpkg --root="$root" --log="$root/log" --force-depends --force-confdef --force-confold -i "$1"
}

life_of_deb() {
	install_deb "$package"
	asks 'systemd-tmpfiles --create wherry.conf'
	asks 'deb-systemd-helper enable wherry.service'
	asks 'deb-systemd-invoke restart wherry.service'
	says_not 'errors'
	is_there etc/wherry/manifests
	[ "$(chroot "$root" wherry version)" = "wherry $(dpkg-deb -f "$package" Version | sed 's/-.*//')" ] || fail 'wherry does not run'

	# An upgrade: nothing is stopped, the agent is restarted, and the operator's changes stay.
	echo 'maxPods: 20' >>"$root/etc/wherry/config.yaml"
	next_deb 2
	install_deb "$root.2.deb"
	asks 'deb-systemd-invoke restart wherry.service'
	asks_not ' stop '
	says_config 'maxPods: 20'
	is_there etc/wherry/config.yaml.dpkg-dist
	grep -q 'Of version 2' "$root/etc/wherry/config.yaml.dpkg-dist" || fail 'the new default configuration was not installed'

	# An upgrade with an invalid configuration: the file is kept, the error is reported, and the running agent is not restarted.
	echo 'podsPerCore: many' >>"$root/etc/wherry/config.yaml"
	next_deb 3
	install_deb "$root.3.deb"
	says_config 'podsPerCore: many'
	says '/etc/wherry/config.yaml:'
	says ': podsPerCore: '
	says 'the running agent continues'
	asks 'systemctl reload wherry.service'
	asks_not 'restart'
	# If no agent runs, the service is started.
	echo 3 >"$root/answers/--quiet"
	next_deb 4
	install_deb "$root.4.deb"
	says 'the service retries until they are corrected'
	asks 'deb-systemd-invoke restart wherry.service'
	rm "$root/answers/--quiet"
	sed -i '/^podsPerCore: many/d' "$root/etc/wherry/config.yaml"

	# An error in a manifest does not prevent the restart.
	echo 'kind: [' >"$root/etc/wherry/manifests/broken.yaml"
	next_deb 5
	install_deb "$root.5.deb"
	says_not 'errors'
	asks 'deb-systemd-invoke restart wherry.service'
	rm "$root/etc/wherry/manifests/broken.yaml"

	# A removal: pods keep running, and the files for a purge are left.
	mkdir -p "$root/var/lib/wherry/records" "$root/etc/systemd/logind.conf.d"
	echo 0123456789abcdef0123456789abcdef >"$root/var/lib/wherry/id"
	echo '[Login]' >"$root/etc/systemd/logind.conf.d/99-wherry.conf"
	echo '[Login]' >"$root/etc/systemd/logind.conf.d/10-theirs.conf"
	quietly dpkg --root="$root" --log="$root/log" --force-depends -r wherry
	asks 'deb-systemd-invoke stop wherry.service'
	says 'keep running'
	is_gone usr/bin/wherry
	is_there var/lib/wherry/purge/wherry
	is_there var/lib/wherry/purge/config.yaml
	is_there var/lib/wherry/records
	says_config 'maxPods: 20'

	# A new installation deletes the files for a purge.
	install_deb "$package"
	is_gone var/lib/wherry/purge
	is_there var/lib/wherry/id

	# A purge never deletes the files of claims.
	quietly dpkg --root="$root" --log="$root/log" --force-depends -i "$package"
	mkdir -p "$root/var/lib/wherry/claims/shop/data" "$root/var/lib/wherry/records"
	echo precious >"$root/var/lib/wherry/claims/shop/data/file"
	quietly dpkg --root="$root" --log="$root/log" --force-depends -P wherry
	says 'kept the directories of claims in /var/lib/wherry/claims'
	is_there var/lib/wherry/claims/shop/data/file
	is_gone var/lib/wherry/records
	rm -r "$root/var/lib/wherry"
	quietly dpkg --root="$root" --log="$root/log" --force-depends -i "$package"

	# A purge without a runtime: this is reported, and all files of Wherry are deleted.
	quietly dpkg --root="$root" --log="$root/log" --force-depends -P wherry
	says 'the container runtime on unix:///run/containerd/containerd.sock'
	says 'failed to remove all pods'
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
	says 'a running agent continues with its previous configuration'
	asks 'systemctl try-reload-or-restart wherry.service'
	asks_not 'try-restart'
	sed -i '/^podsPerCore: many/d' "$root/etc/wherry/config.yaml"

	mkdir -p "$root/var/lib/wherry/records"
	echo 0123456789abcdef0123456789abcdef >"$root/var/lib/wherry/id"
	quietly rpm --root "$root" --nodeps -e wherry
	asks 'systemctl --no-reload disable --now wherry.service'
	says 'keep running'
	says '/var/lib/wherry/purge/wherry purge --yes --config /var/lib/wherry/purge/config.yaml'
	is_gone usr/bin/wherry
	is_there etc/wherry/config.yaml.rpmsave
	is_there var/lib/wherry/purge/wherry
	# The printed command works; it fails only because there is no runtime.
	said=$(chroot "$root" sh -c "$(sed -n 's/^wherry:   \(.*purge --yes.*\)/\1/p' <<<"$said")" 2>&1) && fail 'the purge succeeded without a runtime'
	says 'the container runtime on unix://'
	is_there var/lib/wherry/id
}

nothing_is_left() {
	local left
	left=$(find "$root" -name '*wherry*' ! -path "$root/var/lib/dpkg/*" ! -name '*.deb')
	[ -z "$left" ] || fail "not removed: $left"
}

make_root
case $kind in
deb) life_of_deb ;;
rpm) life_of_rpm "$5" ;;
esac
