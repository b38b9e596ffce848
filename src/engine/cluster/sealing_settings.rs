//! The settings for sealing Secrets and tokens.

use crate::api::sealing::{KeyState, Policy};
use serde::Serialize;

/// The configured policy, and the state of the key that this process uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SealingSettings {
    pub policy: Policy,
    pub key: KeyState,
}
