//! The certificates of the API for kubectl, in `<root>/kubectl` (mode 0700): the node's own CA, the serving
//! certificate, and a record of each client certificate.
//!
//! | file | content |
//! |---|---|
//! | `ca.key`, `ca.crt` | the CA: key and certificate, for ten years |
//! | `server.key`, `server.crt` | the serving certificate, for a year |
//! | `clients/SERIAL.json` | the record of an issued client certificate (`clients`); its key is not stored |
//! | `revoked` | the revoked client certificates (`revoked`) |
//! | `run` | the number of the server's last run (`runs`) |
//! | `lock` | prevents two concurrent changes (`directory`) |
//!
//! All files are PEM or JSON, have mode 0600, and are replaced atomically. The order of the writes makes every
//! interruption harmless: the next call finds a key without a certificate, or a certificate that does not belong to the
//! key, and completes or replaces it. A client certificate is recorded before it is handed out.
//!
//! The current time is an argument. Everything here waits for the disk and for the lock, so the agent runs it on a
//! helper thread. Only `Revoked::changed` and `Revoked::contains` may be called on the event loop.

mod authority;
mod clients;
mod directory;
mod issue;
mod revoked;
mod runs;
mod serving;
#[cfg(test)]
mod tests;
mod timestamp;
mod validity;

pub use authority::Authority;
pub use clients::{Issued, IssuedClient, Role, check_name, clients};
pub use revoked::{Revocation, Revoked, revocations};
pub use serving::{Names, Serving};

use std::path::{Path, PathBuf};

/// Returns the directory of the certificates below a root directory.
pub fn directory(root: &Path) -> PathBuf {
    root.join("kubectl")
}
