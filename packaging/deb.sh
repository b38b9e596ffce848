#!/bin/bash
# `make deb`: target/package/wherry_VERSION_ARCHITECTURE.deb, by dpkg's own tools. Prints its path.
#
# cargo-deb would be built in minutes to write what dpkg-deb writes, and knows neither dpkg-shlibdeps' symbol files nor the scripts that
# a purge needs. WHERRY_REVISION=2 makes a later revision (for a test of the upgrade).
set -euo pipefail
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../tests/lab/common.sh"

cd "$PROJECT"
SOURCE_DATE_EPOCH=$(packaging/version.sh date)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
out=${WHERRY_PACKAGES:-$PROJECT/target/package}
tree=$out/deb
version=$(packaging/version.sh upstream)-$(packaging/version.sh revision)
architecture=$(dpkg --print-architecture)

packaging/build.sh "$tree"

documents=$tree/usr/share/doc/wherry
install -D -m 644 packaging/deb/copyright "$documents/copyright"
install -D -m 644 packaging/deb/lintian-overrides "$tree/usr/share/lintian/overrides/wherry"
gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
# Where zsh of this distribution looks for what packages bring.
install -d "$tree/usr/share/zsh/vendor-completions"
mv "$tree/usr/share/zsh/site-functions/_wherry" "$tree/usr/share/zsh/vendor-completions/_wherry"
rmdir "$tree/usr/share/zsh/site-functions"

# dpkg's tools want to be where debian/ is.
source=$out/deb.source
rm -rf "$source"
install -d "$source/debian"
cp packaging/deb/control "$source/debian/control"
{
	# A revision without an entry of its own.
	if ! grep -qF "($version)" packaging/deb/changelog; then
		printf 'wherry (%s) unstable; urgency=medium\n\n  * Rebuilt.\n\n' "$version"
		printf ' -- %s  %s\n\n' "$(sed -n 's/^Maintainer: //p' packaging/deb/control)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
	fi
	cat packaging/deb/changelog
} >"$source/debian/changelog"
gzip -9nc "$source/debian/changelog" >"$documents/changelog.Debian.gz"

control=$tree/DEBIAN
install -d -m 755 "$control"
(cd "$source" && dpkg-shlibdeps -Tsubstvars -e"$tree/usr/bin/wherry")
(cd "$source" && dpkg-gencontrol -pwherry -Tsubstvars -P"$tree" -O >"$control/control")
for script in postinst prerm postrm; do install -m 755 "packaging/deb/$script" "$control/$script"; done
printf '/etc/wherry/config.yaml\n' >"$control/conffiles"
(cd "$tree" && find etc usr -type f ! -path etc/wherry/config.yaml -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
chmod 644 "$control"/{control,conffiles,md5sums}
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

deb=$out/wherry_${version}_$architecture.deb
# One thread: how xz cuts its blocks must not depend on the machine.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$tree" "$deb" >/dev/null
printf '%s\n' "$deb"
