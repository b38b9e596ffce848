//! The settings of the sealing of Secrets and tokens.

use crate::api::sealing::{KeyState, Policy};
use serde::Serialize;

/// The setting and the key of this run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SealingSettings {
    pub policy: Policy,
    pub key: KeyState,
}
