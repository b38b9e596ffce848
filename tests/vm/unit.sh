#!/bin/bash
# Runs the unit tests of the agent in an emulated ARM machine (`make test-vm-unit ARCH=arm64|armhf`): files, sockets, cgroups and
# processes of its kernel, which an emulator of single programs (tests/arm) does not have. Arguments are passed to the test program.
#
# Exits with 77 if no virtual machine can run, and with 1 if a test failed or the machine did not end in time.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# Seconds, for the whole run.
LIMIT=${WHERRY_VM_LIMIT:-2400}

[ -n "$OTHER" ] || die 'ARCH=arm64 or armhf; the unit tests for this machine are run by make test-unit'
prepare_machine
cd "$PROJECT"
test_program=$("$LAB/cross.sh" "$PACKAGE" cargo test --locked --lib -p wherry --no-run --message-format=json |
	grep '"kind":\["lib"\]' | grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | tail -n 1)
[ -x "$test_program" ] || die 'the test program was not built'

in=$work/in
mkdir -p "$in/wherry-vm" "$in$PROJECT"
cp "$test_program" "$in/wherry-vm/unit"
# Tests read files of the checkout by their paths.
tar -C "$PROJECT" --exclude=./target --exclude=./.git -cf - . | tar -C "$in$PROJECT" -xf -
cat >"$in/wherry-vm/run.sh" <<SCRIPT
#!/bin/bash
cd $PROJECT
export RUST_BACKTRACE=1 HOME=/root
echo "kernel \$(uname -r), \$(getconf PAGESIZE) bytes a page"
ulimit -n 65536
status=0
/wherry-vm/unit --test-threads=2 $* || status=\$?
echo "wherry-vm: ended with \$status"
systemctl --no-block poweroff
SCRIPT
chmod +x "$in/wherry-vm/run.sh"
pack_input "$in"

boot "$LIMIT" "$IMAGE/rootfs.ext4,snapshot=on"
judge_tests
