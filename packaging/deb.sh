#!/bin/bash
# `make deb`: builds target/package/wherry_VERSION_ARCHITECTURE.deb with dpkg's own tools. Prints its path.
#
# cargo-deb takes minutes to build and supports neither dpkg-shlibdeps' symbol files nor the scripts of a purge. WHERRY_REVISION=2
# builds a later revision (to test the upgrade). ARCH=arm64 or armhf builds for another architecture (tests/lab/cross.sh).
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
tree=$out/deb
version=$(packaging/version.sh upstream)-$(packaging/version.sh revision)
architecture=${other:-$(dpkg --print-architecture)}

packaging/build.sh "$tree" $other

documents=$tree/usr/share/doc/wherry
install -D -m 644 packaging/deb/copyright "$documents/copyright"
install -D -m 644 packaging/deb/lintian-overrides "$tree/usr/share/lintian/overrides/wherry"
gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
# The directory in which Debian's zsh looks for the completions of packages.
install -d "$tree/usr/share/zsh/vendor-completions"
mv "$tree/usr/share/zsh/site-functions/_wherry" "$tree/usr/share/zsh/vendor-completions/_wherry"
rmdir "$tree/usr/share/zsh/site-functions"

# dpkg's tools must run in the parent directory of debian/.
source=$out/deb.source
rm -rf "$source"
install -d "$source/debian"
cp packaging/deb/control "$source/debian/control"
{
	# The changelog has no entry for this revision.
	if ! grep -qF "($version)" packaging/deb/changelog; then
		printf 'wherry (%s) unstable; urgency=medium\n\n  * Rebuilt.\n\n' "$version"
		printf ' -- %s  %s\n\n' "$(sed -n 's/^Maintainer: //p' packaging/deb/control)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
	fi
	cat packaging/deb/changelog
} >"$source/debian/changelog"
gzip -9nc "$source/debian/changelog" >"$documents/changelog.Debian.gz"

control=$tree/DEBIAN
install -d -m 755 "$control"
# The libraries of another architecture are not installed here, so dpkg-shlibdeps reads their unpacked packages.
unpacked=()
if [ -n "$other" ]; then
	sysroot=$("$LAB/cross.sh" "$other")
	for package in "$(dirname "$sysroot")/depended-on/$other"/*; do unpacked+=("-S$package"); done
fi
export DEB_HOST_ARCH=$architecture
(cd "$source" && dpkg-shlibdeps -Tsubstvars "${unpacked[@]}" -e"$tree/usr/bin/wherry")
(cd "$source" && dpkg-gencontrol -pwherry -Tsubstvars -P"$tree" -O >"$control/control")
for script in postinst prerm postrm; do install -m 755 "packaging/deb/$script" "$control/$script"; done
printf '/etc/wherry/config.yaml\n' >"$control/conffiles"
(cd "$tree" && find etc usr -type f ! -path etc/wherry/config.yaml -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
chmod 644 "$control"/{control,conffiles,md5sums}
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

deb=$out/wherry_${version}_$architecture.deb
# One thread, because the blocks of xz must not depend on the machine.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$tree" "$deb" >/dev/null
printf '%s\n' "$deb"
