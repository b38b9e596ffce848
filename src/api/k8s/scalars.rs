//! The simple types of Kubernetes that are written as text, or as either a number or text.

use super::field::{FieldMut, FieldRef, FieldValue, IntOrString, simple_values};
use super::{read, write};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A point in time. In JSON, it has no fractions of a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

/// A quantity of a resource as it was written. `api::quantity` parses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantity(pub String);

/// Bytes, which are base64 text in JSON.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ByteString(pub Vec<u8>);

/// Omits the bytes, which may be secret.
impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteString({} bytes)", self.0.len())
    }
}

simple_values! {
    Time: this => FieldRef::Time(this.0), FieldMut::Time(&mut this.0);
    Quantity: this => FieldRef::Text(&this.0), FieldMut::Quantity(&mut this.0);
    IntOrString: this => match this {
        IntOrString::Int(number) => FieldRef::Int((*number).into()),
        IntOrString::String(text) => FieldRef::Text(text),
    }, FieldMut::IntOrString(this);
    ByteString: this => FieldRef::Bytes(&this.0), FieldMut::Bytes(&mut this.0);
}

macro_rules! json_forms {
    ($($type:ident)*) => { $(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write::Json(self).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                read::deserialize(deserializer)
            }
        }
    )* };
}

json_forms!(Time Quantity IntOrString ByteString);
