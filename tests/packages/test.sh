#!/bin/bash
# Tests the deb and the rpm (`make test-packages`): builds them in two directories and compares the bytes, checks them with lintian and
# rpmlint, and installs, upgrades, removes and purges them in a separate root directory (roots.sh). `test.sh once` skips the second
# build, which takes minutes.
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
# shellcheck source=tests/lab/check.sh
. "$LAB/check.sh"

# Maximum sizes in bytes.
MOST_DEB=$((3 * 1000 * 1000))
MOST_INSTALLED=$((10 * 1000 * 1000))

can_be_root || die 'the installation in a separate root directory needs root or sudo, which are not available'
cd "$PROJECT"
work=$(as_caller mktemp -d "${TMPDIR:-/var/tmp}/wherry-packages.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

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

# docs/service.md must contain the exposure level.
exposure_is_told() {
	local figure
	figure=$(systemd-analyze security --offline=true --no-pager packaging/wherry.service | sed -n 's/.*exposure level for wherry.service: \([0-9.]*\) .*/\1/p')
	[ -n "$figure" ] && grep -qF "**$figure**" docs/service.md || { say "systemd-analyze reports ${figure:-nothing}"; return 1; }
}

# Copies the files of the checkout that are in git or would be added.
copy_checkout() {
	as_caller mkdir -p "$1"
	git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | as_caller tar --null -T - -cf - | as_caller tar -xf - -C "$1"
}

built_elsewhere_is_the_same() {
	local there=$work/a/checkout/of/quite/another/length other
	copy_checkout "$there"
	# (The second build reuses the program that writes the man pages: its output is compared, and its build takes minutes.)
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
check 'the installed files are small' at_most "$(du -sb "$tree" | cut -f1)" $MOST_INSTALLED
check 'lintian reports nothing unexpected' as_caller lintian --fail-on warning --tag-display-limit 0 "$deb"
check 'rpmlint reports nothing unexpected' look_over_rpm
check 'the man pages have no errors' pages_are_sound
check 'the completion for bash has no errors' bash -n "$tree/usr/share/bash-completion/completions/wherry"
check "docs/service.md has the unit's exposure level" exposure_is_told
check 'the binary contains no path of the build machine' not grep -qaF "$PROJECT" "$tree/usr/bin/wherry"

check 'the deb is installed, upgraded, removed and purged' as_root "$PROJECT/tests/packages/roots.sh" deb "$deb" "$tree/usr/bin/wherry" "$work/deb"
WHERRY_REVISION=2 WHERRY_BINARY=$tree/usr/bin/wherry WHERRY_PACKAGES=$work/next as_caller packaging/rpm.sh >/dev/null
check 'the rpm is installed, upgraded and erased' as_root "$PROJECT/tests/packages/roots.sh" rpm "$rpm" "$tree/usr/bin/wherry" "$work/rpm" "$work"/next/*.rpm

if [ "${1:-}" != once ]; then
	say 'building again in another directory'
	check 'two builds give the same bytes' built_elsewhere_is_the_same
fi

[ "$bad" = 0 ] || die "$bad failed"
say 'all passed'
