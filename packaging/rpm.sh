#!/bin/bash
# `make rpm`: builds target/package/wherry-VERSION.ARCHITECTURE.rpm with rpmbuild. Prints its path. WHERRY_REVISION=2 builds a later
# revision. ARCH=aarch64 or armv7hl builds for another architecture (tests/lab/cross.sh).
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../tests/lab/common.sh"
# shellcheck source=packaging/architecture.sh
. "$(dirname "$0")/architecture.sh"

cd "$PROJECT"
SOURCE_DATE_EPOCH=$(packaging/version.sh date)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
out=${WHERRY_PACKAGES:-$PROJECT/target/package}
tree=$out/rpm
upstream=$(packaging/version.sh upstream)
revision=$(packaging/version.sh revision)
case $other in
arm64) target=aarch64-linux ;;
armhf) target=armv7hl-linux ;;
*) target= ;;
esac

packaging/build.sh "$tree" $other
install -D -m 644 LICENSE "$tree/usr/share/licenses/wherry/LICENSE"
install -m 644 CHANGELOG.md "$tree/usr/share/doc/wherry/CHANGELOG.md"

top=$out/rpm.top
rm -rf "$top"
install -d "$top"
{
	cat packaging/rpm/wherry.spec
	# The changelog has no entry for this revision.
	if ! grep -q -- " - $upstream-$revision\$" packaging/rpm/changelog; then
		printf '* %s Wherry maintainers <maintainers@wherry.invalid> - %s-%s\n- Rebuilt.\n\n' \
			"$(date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" "$upstream" "$revision"
	fi
	cat packaging/rpm/changelog
} >"$top/wherry.spec"
# (_topdir is defined first, so that a user's own definition has no effect.)
rpmbuild --quiet -bb ${target:+--target "$target"} --define "_topdir $top" --define "_tmppath $top" --define "tree $tree" --define "upstream $upstream" \
	--define "revision $revision" "$top/wherry.spec" >&2
rpm=$(find "$top/RPMS" -name '*.rpm')
mv "$rpm" "$out/"
printf '%s\n' "$out/$(basename "$rpm")"
