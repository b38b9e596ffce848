# shellcheck shell=bash
# Checks that the scripts inside the machines share. Sourced, never run.
# shellcheck disable=SC2034,SC2317

# Seconds; the processor is emulated and shared.
PATIENCE=300
boot=$(sed -n 's/.*wherry-vm\.boot=\([0-9]*\).*/\1/p' /proc/cmdline)

# `check TEXT COMMAND...`
check() {
	if "${@:2}"; then echo "passed: $1"; else echo "FAILED: $1"; fi
}

# `until_true TEXT COMMAND...`; ends the script if the command does not succeed in time.
until_true() {
	local end=$((SECONDS + PATIENCE))
	until "${@:2}" >/dev/null 2>&1; do
		if [ $SECONDS -ge $end ]; then
			echo "FAILED: within $PATIENCE s: $1"
			wherry status
			wherry pods
			wherry events | tail -n 20
			journalctl -b -u wherry -u containerd -n 60 --no-pager
			exit 1
		fi
		sleep 0.5
	done
	echo "passed: $1"
}

property() { systemctl show --property="$1" --value wherry.service; }
is() { [ "$1" = "$2" ] || { echo "   $1 instead of $2"; return 1; }; }
at_least() { [ "$1" -ge "$2" ] || { echo "   $1 is less than $2"; return 1; }; }
