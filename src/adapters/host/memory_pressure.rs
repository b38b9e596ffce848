//! Receives the kernel's reports that programs wait for memory, with a trigger of /proc/pressure/memory (pressure
//! stall information).

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

const PATH: &str = "/proc/pressure/memory";
/// The kernel reports when some program waited for memory for 200 ms within 2 s. A period of 2 s needs no capability
/// since Linux 6.5.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// An armed trigger. The kernel reports at most once in its period.
#[derive(Debug)]
pub struct MemoryPressure {
    file: File,
    token: Token,
}

impl MemoryPressure {
    /// Arms a trigger.
    ///
    /// # Errors
    /// The kernel has no pressure stall information, or the process may not set a trigger.
    pub fn watch(registry: &Registry, token: Token) -> io::Result<MemoryPressure> {
        let mut file = OpenOptions::new().read(true).write(true).open(Path::new(PATH))?;
        file.write_all(TRIGGER)?;
        registry.register(&mut SourceFd(&file.as_raw_fd()), token, Interest::PRIORITY)?;
        Ok(MemoryPressure { file, token })
    }

    pub fn owns(&self, token: Token) -> bool {
        self.token == token
    }

    pub fn close(self, registry: &Registry) {
        // A failure does not matter, because closing the file also removes the registration.
        let _ = registry.deregister(&mut SourceFd(&self.file.as_raw_fd()));
    }
}
