//! The fields of a protobuf message.

/// The value of a field.
#[derive(Clone, Copy)]
pub(super) enum WireValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A message is truncated, or has a field of an invalid type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Returns the fields of a message in their order. After an error, there are no more items.
pub(super) fn read_fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u64, WireValue<'_>), Malformed>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = read_field(&mut rest).ok_or(Malformed);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn read_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, WireValue<'a>)> {
    let tag = varint(rest)?;
    match tag & 7 {
        0 => Some((tag >> 3, WireValue::Number(varint(rest)?))),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Some((tag >> 3, WireValue::Bytes(bytes)))
        }
        _ => None,
    }
}

pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
