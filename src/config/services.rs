//! The addresses of services.

use crate::api::address_range::AddressRange;

/// Parses `serviceClusterIPRange`: one range, or one for each family, separated by a comma, as for an API server.
///
/// # Errors
/// A range is invalid, or both are of one family.
pub fn ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    let all: Vec<AddressRange> =
        text.split(',').map(|one| AddressRange::parse(one.trim())).collect::<Result<_, _>>()?;
    match all.as_slice() {
        [_] => Ok(all),
        [first, second] if first.family() != second.family() => Ok(all),
        _ => Err(format!("{text:?} must be one range, or one of IPv4 and one of IPv6, separated by a comma")),
    }
}
