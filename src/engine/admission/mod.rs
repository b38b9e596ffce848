//! Whether a pod fits onto the node (A2, A3), and who would have to go for a critical one that does not (A6, A7).
//! Pure arithmetic over what pods ask for; nothing of it is asked by the node yet.

pub mod asks;
pub mod fit;
pub mod predicates;
pub mod preempt;
