//! Reads the identity of the machine.

use crate::api::cluster::machine::MachineIdentity;
use std::fs;
use std::path::Path;

/// The files from which a kubelet reads the id of the installation. The first one that exists is used.
const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
/// The files from which a kubelet reads the UUID of the machine: those of SMBIOS and of the device tree and, on a
/// board with neither, the id of the installation.
const SYSTEM_UUIDS: [&str; 4] =
    ["sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"];

/// Returns the text of a file. The files of a device tree end with a NUL. An empty file is treated as missing, because
/// firmware may have no value.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\0').trim().to_owned()).filter(|text| !text.is_empty())
}

/// Reads the identity. A value that cannot be read is empty.
pub fn read() -> MachineIdentity {
    below(Path::new("/"))
}

fn below(root: &Path) -> MachineIdentity {
    let first = |paths: &[&str]| paths.iter().find_map(|path| line(&root.join(path))).unwrap_or_default();
    let release = fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    MachineIdentity {
        machine_id: first(&MACHINE_IDS),
        system_uuid: first(&SYSTEM_UUIDS),
        boot_id: super::machine::boot_id(),
        kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
        os_image: name.unwrap_or("Linux").trim_matches('"').to_owned(),
        architecture: std::env::consts::ARCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_without_smbios_has_the_uuid_of_its_device_tree_or_its_machine_id() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let ids = || below(root.path()).ids().map(str::to_owned);
        let boot = crate::adapters::host::machine::boot_id();
        assert_eq!(ids(), ["", "", &boot]);
        write("var/lib/dbus/machine-id", "d0d0\n");
        assert_eq!(ids(), ["d0d0", "", &boot]);
        write("etc/machine-id", "3d12\n");
        assert_eq!(ids(), ["3d12", "3d12", &boot]);
        write("proc/device-tree/vm,uuid", "7e5f\0");
        assert_eq!(ids()[1], "7e5f");
        write("proc/device-tree/system-id", "\0");
        assert_eq!(ids()[1], "7e5f", "an empty value counts as none");
        write("proc/device-tree/system-id", "a1b2\0");
        assert_eq!(ids()[1], "a1b2");
        write("sys/class/dmi/id/product_uuid", "4C4C\n");
        assert_eq!(ids(), ["3d12", "4C4C", &boot]);
        assert!(!boot.is_empty());
    }
}
