//! The parts of the archive that describe the machine.

use super::archive::CollectedPart;
use super::reading;
use crate::adapters::host::file_system;
use crate::adapters::host::machine::boot_id;
use crate::commands::check_system;
use crate::commands::output::shown;
use crate::config::{Config, Flags};
use crate::foreign::Links;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the versions of Wherry, the kernel and the distribution.
pub(super) fn version(now: Timestamp) -> CollectedPart {
    let uname = rustix::system::uname();
    let [kernel, build, machine] = [uname.release(), uname.version(), uname.machine()].map(|s| s.to_string_lossy());
    let uptime = reading::text(Path::new("/proc/uptime"), Links::Follow).unwrap_or_default();
    let uptime = uptime.split(' ').next().unwrap_or_default();
    let release = reading::text(Path::new("/etc/os-release"), Links::Follow).unwrap_or_else(|why| why + "\n");
    let text = format!(
        "wherry: {}\narchitecture: {}, {} bits\nkernel: {kernel} {build} {machine}\nboot id: {}\ntime: {now}\n\
         seconds since the boot: {uptime}\nuser id: {}\n\n/etc/os-release:\n{release}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        usize::BITS,
        boot_id(),
        rustix::process::geteuid().as_raw(),
    );
    text.into()
}

/// Returns the output of `wherry check --system`.
pub(super) fn system_check(flags: &Flags) -> Result<CollectedPart, String> {
    let mut text = Vec::new();
    check_system::write_lines(&mut text, &check_system::findings(flags)).map_err(|e| e.to_string())?;
    Ok(text.into())
}

/// Returns the sizes of the file systems of Wherry's directories.
pub(super) fn disks(config: &Config) -> CollectedPart {
    let mut text = String::from("path: bytes, bytes available, inodes, inodes free\n");
    let run = config.socket.parent().unwrap_or(Path::new("/"));
    let own = [&config.root_dir, &config.pod_logs_dir, &config.manifests].map(|path| path.as_path());
    for path in own.into_iter().chain([run, Path::new("/")]) {
        let measured = reading::read(path, |path| file_system::measure(path).map_err(|e| e.to_string()));
        let line = match measured {
            Ok(fact) => {
                let (size, available, inodes, free) = (fact.capacity, fact.available, fact.inodes, fact.inodes_free);
                format!("{}: {size}, {available}, {inodes}, {free}", path.display())
            }
            Err(why) => why,
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", shown(&line));
    }
    text.into()
}
