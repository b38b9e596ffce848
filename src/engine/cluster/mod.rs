//! This machine as a node of a cluster: registration, lease, status, and the pods that the API server binds to the
//! node.
//!
//! Every state machine here is level-triggered, like a pod's worker: a step compares the desired state with the
//! reported state, and begins the requests that are due. While the server cannot be reached, a single request tests
//! the connection, and nothing else changes: the pods keep running.

pub mod access;
pub mod backoff;
pub mod cache;
pub mod certificate;
pub mod certificates;
pub mod connection;
pub mod data;
pub mod duplicate_node;
pub mod event_limits;
pub mod event_queue;
pub mod excess;
pub mod lease;
pub mod lists;
pub mod member;
pub mod mirrors;
pub mod node;
pub mod own_node;
pub mod own_status;
pub mod pods;
pub mod reflector;
pub mod reports;
pub mod reviews;
pub mod sealing;
pub mod sealing_settings;
pub mod shown_cordon;
pub mod stored;
pub mod tokens;
pub mod traffic;
mod warning;

use member::Member;
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub enum Cluster {
    /// Pods come only from manifests.
    #[default]
    Standalone,
    Member(Box<Member>),
}

impl Cluster {
    pub fn member(&self) -> Option<&Member> {
        match self {
            Cluster::Standalone => None,
            Cluster::Member(member) => Some(member),
        }
    }

    pub fn member_mut(&mut self) -> Option<&mut Member> {
        match self {
            Cluster::Standalone => None,
            Cluster::Member(member) => Some(member),
        }
    }
}
