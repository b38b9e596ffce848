//! The command line flags of the configuration, and its default paths.

use std::net::IpAddr;
use std::path::PathBuf;

pub const DEFAULT_FILE: &str = "/etc/wherry/config.yaml";
pub const DEFAULT_DIR: &str = "/etc/wherry/config.d";
pub const DEFAULT_SOCKET: &str = "/run/wherry/wherry.sock";

/// Command line flags that override the configuration.
// The flags are stored so that the configuration can be read again (SIGHUP). A file or directory named by `config` or
// `config_dir` must exist; the defaults are optional.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Flags {
    /// Configuration file [default: /etc/wherry/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of configuration drop-ins [default: /etc/wherry/config.d, if it exists]
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Directory of manifests [default: /etc/wherry/manifests]
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Directory for state and volumes [default: /var/lib/wherry]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Directory of pod logs [default: /var/log/pods]
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Directory for links to container logs [default: /var/log/containers]
    #[arg(long, value_name = "DIR")]
    pub container_log_dir: Option<PathBuf>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "ENDPOINT")]
    pub runtime_endpoint: Option<String>,
    /// Control socket [default: /run/wherry/wherry.sock]
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// The node's name [default: the host name in lower case]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Address of the health port [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub healthz_address: Option<IpAddr>,
    /// Port of /healthz, /livez and /readyz, 0 for none [default: 10248]
    #[arg(long, value_name = "PORT")]
    pub healthz_port: Option<u16>,
    /// Port of /healthz, /metrics and /pods without authentication, 0 for none [default: 0]
    #[arg(long, value_name = "PORT")]
    pub read_only_port: Option<u16>,
    /// Log verbosity: 0 info, 4 debug, 6 trace [default: 0]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u32>,
}
