#!/bin/bash
# The deb and the rpm (`make test-packages`): built in two directories and compared byte by byte, looked over by lintian and rpmlint, and
# installed, upgraded, removed and purged below a root of their own (roots.sh). `test.sh once` leaves out the second build, which takes
# minutes.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"

# Bytes.
MOST_DEB=$((3 * 1000 * 1000))
MOST_INSTALLED=$((10 * 1000 * 1000))

can_be_root || die 'installing below a root of its own needs root or sudo, and neither is to be had'
cd "$PROJECT"
work=$(as_caller mktemp -d "${TMPDIR:-/var/tmp}/wherry-packages.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

bad=0
# `check TEXT COMMAND...`
check() {
	if "${@:2}"; then
		printf 'passed: %s\n' "$1"
	else
		printf 'FAILED: %s\n' "$1"
		bad=$((bad + 1))
	fi
}

not() { ! "$@"; }

at_most() { [ "$1" -le "$2" ] || { say "$1 is more than $2"; return 1; }; }

look_over_rpm() {
	local said
	said=$(as_caller rpmlint -c packaging/rpm/rpmlint.toml "$rpm" 2>&1) && grep -q ' 0 errors, 0 warnings' <<<"$said" && return
	say "$said"
	return 1
}

pages_are_sound() {
	local page warnings=
	for page in "$tree"/usr/share/man/man[15]/*; do
		warnings+=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null) || return 1
	done
	[ -z "$warnings" ] || { say "$warnings"; return 1; }
	for page in man1/wherry.1 man1/wherry-run.1 man5/wherry-config.5 man5/wherry-manifests.5; do
		[ -s "$tree/usr/share/man/$page.gz" ] || { say "no $page"; return 1; }
	done
}

# The figure that docs/service.md tells.
exposure_is_told() {
	local figure
	figure=$(systemd-analyze security --offline=true --no-pager packaging/wherry.service | sed -n 's/.*exposure level for wherry.service: \([0-9.]*\) .*/\1/p')
	[ -n "$figure" ] && grep -qF "**$figure**" docs/service.md || { say "systemd-analyze says ${figure:-nothing}"; return 1; }
}

# What of the checkout is in git, or would be.
copy_checkout() {
	as_caller mkdir -p "$1"
	git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | as_caller tar --null -T - -cf - | as_caller tar -xf - -C "$1"
}

built_elsewhere_is_the_same() {
	local there=$work/a/checkout/of/quite/another/length other
	copy_checkout "$there"
	# (The program that writes the pages is the one of before: what it writes is compared, and to build it takes minutes.)
	for kind in deb rpm; do
		other=$(cd "$there" && as_caller env WHERRY_TEXTS="$PROJECT/target/debug/examples/texts" \
			"packaging/$kind.sh") || return 1
		cmp "$other" "${!kind}" || return 1
	done
}

SOURCE_DATE_EPOCH=$(packaging/version.sh date)
export SOURCE_DATE_EPOCH

say 'building'
deb=$(as_caller packaging/deb.sh)
rpm=$(as_caller packaging/rpm.sh)
tree=$work/tree
as_caller dpkg-deb -x "$deb" "$tree"

check 'the deb is small' at_most "$(stat -c %s "$deb")" $MOST_DEB
check 'the rpm is small' at_most "$(stat -c %s "$rpm")" $MOST_DEB
check 'what they install is small' at_most "$(du -sb "$tree" | cut -f1)" $MOST_INSTALLED
check 'lintian finds nothing that is not explained' as_caller lintian --fail-on warning --tag-display-limit 0 "$deb"
check 'rpmlint finds nothing that is not explained' look_over_rpm
check 'the man pages are sound' pages_are_sound
check "bash's completion is sound" bash -n "$tree/usr/share/bash-completion/completions/wherry"
check "docs/service.md tells the unit's exposure" exposure_is_told
check 'no path of the builder is in the binary' not grep -qaF "$PROJECT" "$tree/usr/bin/wherry"

check 'the deb is installed, upgraded, removed and purged' as_root "$PROJECT/tests/packages/roots.sh" deb "$deb" "$tree/usr/bin/wherry" "$work/deb"
WHERRY_REVISION=2 WHERRY_BINARY=$tree/usr/bin/wherry WHERRY_PACKAGES=$work/next as_caller packaging/rpm.sh >/dev/null
check 'the rpm is installed, upgraded and erased' as_root "$PROJECT/tests/packages/roots.sh" rpm "$rpm" "$tree/usr/bin/wherry" "$work/rpm" "$work"/next/*.rpm

if [ "${1:-}" != once ]; then
	say 'building again, elsewhere'
	check 'two builds are the same bytes' built_elsewhere_is_the_same
fi

[ "$bad" = 0 ] || die "$bad failed"
say 'all passed'
