//! Reports the value of a field that its grammar or a list of values does not permit.

use super::syntax::Complaints;
use crate::api::problem::{At, Faults};

pub(super) fn complain(complaints: Complaints, value: &str, at: At<'_>, faults: &mut Faults) {
    complaints.into_iter().for_each(|complaint| faults.invalid(at, value, complaint));
}

pub(super) fn one_of(value: Option<&str>, supported: &[&str], at: At<'_>, faults: &mut Faults) {
    let value = value.unwrap_or_default();
    if !supported.contains(&value) {
        faults.unsupported_value(at, value, supported);
    }
}
