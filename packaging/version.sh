#!/bin/bash
# `version.sh upstream`: the crate's version. `version.sh revision`: the package revision, 1 or WHERRY_REVISION.
# `version.sh date`: the time of the commit in seconds since the epoch, or of the last changelog entry if there is no git.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
upstream) sed -n '/^\[workspace.package\]/,/^\[/s/^version *= *"\(.*\)".*/\1/p' Cargo.toml ;;
revision) printf '%s\n' "${WHERRY_REVISION:-1}" ;;
date)
	if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
		printf '%s\n' "$SOURCE_DATE_EPOCH"
	else
		# (Under sudo, the checkout belongs to another user.)
		git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || date -u -d "$(sed -n 's/^ -- .*>  //p' packaging/deb/changelog | head -n 1)" +%s
	fi
	;;
*)
	echo "usage: version.sh upstream|revision|date" >&2
	exit 2
	;;
esac
