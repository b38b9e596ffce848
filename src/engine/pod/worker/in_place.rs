//! C2: a pod of the API server follows the changes of its object.
//!
//! A running pod gets new images between two operations (`replacing`), and new requests and limits when they fit
//! (`resize`). A pod that does not run gets both at once.

use super::replacing::Replacing;
use super::resize::Resize;
use serde::Serialize;

/// The changes that wait or are in progress.
#[derive(Debug, Default, Serialize)]
pub struct InPlace {
    pub resize: Resize,
    pub(super) replacing: Replacing,
}
