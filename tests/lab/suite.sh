# shellcheck shell=bash
# Unpacks packages of another Debian suite beside the system's, without installing them. Sourced, after common.sh. The caller sets
# DIR, the directory for them, and SUITE. apt uses separate lists and directories, with this machine's mirror and keyring.

# Prints the package mirror of this machine.
mirror() {
	awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
		awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^http/) { print $i; exit } }' /etc/apt/sources.list 2>/dev/null
}

apt_alone() {
	apt-get -q -o Dir::Etc::sourcelist="$DIR/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$DIR/lists" -o Dir::State::status="$DIR/status" \
		-o Dir::Cache::archives="$DIR/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::Languages=none -o APT::Get::List-Cleanup=0 "$@"
}

fetch() {
	local from kind keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	rm -rf "$DIR"
	mkdir -p "$DIR"/{lists/partial,archives/partial,unpacked}
	# Without the installed packages, whose versions could be higher.
	: >"$DIR/status"
	from=$(mirror)
	for kind in deb ${SOURCE:+deb-src}; do
		printf '%s [signed-by=%s] %s %s main\n' "$kind" "$keyring" "${from:-http://deb.debian.org/debian}" "$SUITE"
	done >"$DIR/sources.list"
	apt_alone -o APT::Update::Error-Mode=any update
	cd "$DIR/archives"
	apt_alone download "$@"
	for package in *.deb; do dpkg -x "$package" "$DIR/unpacked"; done
	if [ -n "${SOURCE:-}" ]; then
		apt_alone source --download-only "$SOURCE"
		mkdir -p "$DIR/unpacked/source"
		for tarball in *.orig.tar.*; do tar -xf "$tarball" -C "$DIR/unpacked/source"; done
	fi
	rm -rf "$DIR/lists" "$DIR/archives"
}

# unpack PACKAGE...: unpacks the packages into $DIR/unpacked, and the upstream source of the source package $SOURCE, if set, into
# $DIR/unpacked/source, with three attempts. Prints the reason and returns a code other than 0 if they are not available here.
unpack() {
	local log try status
	# shellcheck disable=SC1091
	. /etc/os-release
	if [ "${ID:-}" != debian ] || [ "${VERSION_ID:-}" != 12 ]; then
		say "packages of other suites need Debian 12, but this machine runs ${PRETTY_NAME:-another distribution}"
		return 1
	fi
	if ! have apt-get || ! have dpkg; then
		say 'packages of other suites need apt-get and dpkg'
		return 1
	fi
	log=$(mktemp)
	for try in 1 2 3; do
		# (A separate shell, because under `if` a shell ignores `set -e`.)
		status=0
		(export -f fetch apt_alone mirror; export DIR SUITE SOURCE="${SOURCE:-}"; bash -euo pipefail -c 'fetch "$@"' fetch "$@") >"$log" 2>&1 || status=$?
		[ "$status" != 0 ] || break
		[ "$try" = 3 ] || sleep $((try * 3))
	done
	if [ "$status" != 0 ]; then
		tail -n 5 "$log" >&2
		say 'failed to download the packages (see above)'
	fi
	rm -f "$log"
	return "$status"
}
