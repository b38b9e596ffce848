#!/bin/bash
# Runs the runtime tests in a virtual machine (`make test-vm`) with systemd and pure cgroup v2, like a fresh Debian. Arguments are
# passed to the test program.
#
# Exits with 77 if no virtual machine can run, and with 1 if a test failed or the machine did not end in time.
set -euo pipefail
# shellcheck source=tests/vm/machine.sh
. "$(dirname "$0")/machine.sh"

# Seconds, for the whole run.
LIMIT=${WHERRY_VM_LIMIT:-7200}

only_here
prepare_machine
cd "$PROJECT"
"$LAB/install.sh" build runtime
images=$PROJECT/target/lab-images
as_caller "$LAB/images.sh" "$images"
# The tests contain the compiled-in paths of the checkout, so the machine uses the same paths.
test_program=$("$LAB/cargo.sh" test --no-run --test runtime --message-format=json |
	grep '"kind":\["test"\]' | grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | tail -n 1)
[ -x "$test_program" ] || die 'the test program was not built'

in=$work/in
mkdir -p "$in/wherry-vm" "$in$PROJECT/tests" "$in$images" "$in$(dirname "$test_program")" "$in$PROJECT/target/debug"
cp -r "$LAB" "$PROJECT/tests/fixtures" "$in$PROJECT/tests/"
# (Tests compare documents with the behaviour.)
cp -r "$PROJECT/docs" "$in$PROJECT/"
cp -r "$images/." "$in$images/"
strip -o "$in$test_program" "$test_program"
strip -o "$in$PROJECT/target/debug/wherry" "$PROJECT/target/debug/wherry"
cat >"$in/wherry-vm/run.sh" <<SCRIPT
#!/bin/bash
cd $PROJECT
export WHERRY_LAB_IMAGES=$images WHERRY_LAB_SLOW=10 RUST_BACKTRACE=1 HOME=/root
echo "kernel \$(uname -r), systemd \$(systemctl --version | head -n 1), cgroups \$(stat -f -c %T /sys/fs/cgroup)"
status=0
tests/lab/isolate.sh tests/lab/in-lab.sh --inside $test_program --test-threads=2 $* || status=\$?
echo "wherry-vm: ended with \$status"
systemctl --no-block poweroff
SCRIPT
chmod +x "$in/wherry-vm/run.sh"
pack_input "$in"

boot "$LIMIT" "$CACHE/rootfs.ext4,snapshot=on"
judge_tests
