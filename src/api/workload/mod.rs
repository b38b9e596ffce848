//! The objects that create pods from a template (apps/v1), and the pods that they create.

pub mod deployment;
pub mod label_selector;
pub mod portion;
pub mod replica;
pub mod template;
