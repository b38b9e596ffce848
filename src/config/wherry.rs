//! `kind: WherryConfiguration` (wherry.io/v1alpha1): what a KubeletConfiguration has no field for, because a kubelet
//! takes it on its command line or not at all.

use crate::config::problem::absolute;
use crate::config::table::{Field, Kind, Set, Use};

pub const API_VERSION: &str = "wherry.io/v1alpha1";
pub const KIND: &str = "WherryConfiguration";

const fn set(name: &'static str, kind: Kind, set: Set) -> Field {
    Field { name, kind, what: Use::Honoured(set) }
}

/// In the order of the alphabet.
pub static FIELDS: &[Field] = &[
    set("containerLogsDir", Kind::Text, |c, v| absolute(v.text()).map(|p| c.container_logs_dir = p)),
    set("logindConfDir", Kind::Text, |c, v| absolute(v.text()).map(|p| c.logind_conf_dir = p)),
    set("nodeName", Kind::Text, |c, v| {
        super::check_node_name(v.text())?;
        c.node_name = v.text().to_owned();
        Ok(())
    }),
    set("rootDir", Kind::Text, |c, v| absolute(v.text()).map(|p| c.root_dir = p)),
    set("socket", Kind::Text, |c, v| {
        super::check_socket(v.text())?;
        absolute(v.text()).map(|p| c.socket = p)
    }),
];
