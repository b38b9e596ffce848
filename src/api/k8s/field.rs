//! Accesses the fields of the Kubernetes types through `dyn`, so that readers, writers, copies and comparisons are
//! compiled once for all types. Generated implementations for each type would add about 800 kB to the binary; this
//! one adds 250 kB.

use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The value of a field, or of an item of a field.
pub trait FieldValue {
    fn value(&self) -> FieldRef<'_>;
    /// Returns where to write a value. An absent field becomes present, with the default value.
    fn place(&mut self) -> FieldMut<'_>;
}

/// A value to read.
pub enum FieldRef<'a> {
    Absent,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    Time(Timestamp),
    Bytes(&'a [u8]),
    Json(&'a Value),
    List(&'a dyn AnyList),
    Map(&'a dyn AnyMap),
    Object(&'a dyn AnyObject),
}

/// A value to write. The variant tells what the type accepts.
pub enum FieldMut<'a> {
    Bool(&'a mut bool),
    Int32(&'a mut i32),
    Int64(&'a mut i64),
    Text(&'a mut String),
    Quantity(&'a mut String),
    IntOrString(&'a mut IntOrString),
    Time(&'a mut Timestamp),
    Bytes(&'a mut Vec<u8>),
    Json(&'a mut Value),
    List(&'a mut dyn AnyList),
    Map(&'a mut dyn AnyMap),
    Object(&'a mut dyn AnyObject),
}

/// The port of a probe or of a hook: a number, or the name of a port of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Default for IntOrString {
    fn default() -> IntOrString {
        IntOrString::Int(0)
    }
}

/// A `Vec` of any type.
pub trait AnyList {
    fn item(&self, index: usize) -> Option<&dyn FieldValue>;
    fn reserve(&mut self, count: usize);
    /// Adds an item with the default value.
    fn add(&mut self) -> &mut dyn FieldValue;
}

/// A map with arbitrary keys.
pub trait AnyMap {
    /// Returns the entries in the order of their keys.
    fn entries(&self) -> Box<dyn Iterator<Item = (&str, &dyn FieldValue)> + '_>;
    /// Returns the entry with this key. A new entry has the default value.
    fn entry(&mut self, key: &str) -> &mut dyn FieldValue;
}

/// A type with named fields.
pub trait AnyObject {
    fn shape(&self) -> &'static Shape;
    /// Returns the field at an index of `Shape::fields`.
    fn field(&self, index: usize) -> &dyn FieldValue;
    fn field_mut(&mut self, index: usize) -> &mut dyn FieldValue;
}

/// The names of a type and its fields.
pub struct Shape {
    /// The name of the type in the API of Kubernetes.
    pub name: &'static str,
    /// Present for a type that is a complete API object.
    pub identity: Option<ObjectIdentity>,
    /// The names of the fields in JSON, in the order in which they are written.
    pub fields: &'static [&'static str],
}

/// The two fields that are the same in all objects of a type.
pub struct ObjectIdentity {
    pub api_version: &'static str,
    pub kind: &'static str,
}

impl ObjectIdentity {
    /// Returns the fields, with their values.
    pub fn fields(&self) -> [(&'static str, &'static str); 2] {
        [("apiVersion", self.api_version), ("kind", self.kind)]
    }
}

macro_rules! simple_values {
    ($($type:ty: $this:ident => $value:expr, $place:expr;)*) => { $(impl FieldValue for $type {
        fn value(&self) -> FieldRef<'_> {
            let $this = self;
            $value
        }

        fn place(&mut self) -> FieldMut<'_> {
            let $this = self;
            $place
        }
    })* };
}
pub(super) use simple_values;

simple_values! {
    bool: this => FieldRef::Bool(*this), FieldMut::Bool(this);
    i32: this => FieldRef::Int((*this).into()), FieldMut::Int32(this);
    i64: this => FieldRef::Int(*this), FieldMut::Int64(this);
    String: this => FieldRef::Text(this), FieldMut::Text(this);
    Value: this => FieldRef::Json(this), FieldMut::Json(this);
}

impl<T: FieldValue + Default> FieldValue for Option<T> {
    fn value(&self) -> FieldRef<'_> {
        self.as_ref().map_or(FieldRef::Absent, FieldValue::value)
    }

    fn place(&mut self) -> FieldMut<'_> {
        self.get_or_insert_default().place()
    }
}

impl<T: FieldValue> FieldValue for Box<T> {
    fn value(&self) -> FieldRef<'_> {
        (**self).value()
    }

    fn place(&mut self) -> FieldMut<'_> {
        (**self).place()
    }
}

impl<T: FieldValue + Default> FieldValue for Vec<T> {
    fn value(&self) -> FieldRef<'_> {
        FieldRef::List(self)
    }

    fn place(&mut self) -> FieldMut<'_> {
        FieldMut::List(self)
    }
}

impl<T: FieldValue + Default> AnyList for Vec<T> {
    fn item(&self, index: usize) -> Option<&dyn FieldValue> {
        self.get(index).map(|item| item as &dyn FieldValue)
    }

    fn reserve(&mut self, count: usize) {
        self.reserve_exact(count);
    }

    fn add(&mut self) -> &mut dyn FieldValue {
        let index = self.len();
        self.push(T::default());
        &mut self[index]
    }
}

impl<T: FieldValue + Default> FieldValue for BTreeMap<String, T> {
    fn value(&self) -> FieldRef<'_> {
        FieldRef::Map(self)
    }

    fn place(&mut self) -> FieldMut<'_> {
        FieldMut::Map(self)
    }
}

impl<T: FieldValue + Default> AnyMap for BTreeMap<String, T> {
    fn entries(&self) -> Box<dyn Iterator<Item = (&str, &dyn FieldValue)> + '_> {
        Box::new(self.iter().map(|(key, value)| (key.as_str(), value as &dyn FieldValue)))
    }

    fn entry(&mut self, key: &str) -> &mut dyn FieldValue {
        self.entry(key.to_owned()).or_default()
    }
}

/// Copies a value. `to` must have the default value.
pub fn copy(to: &mut dyn FieldValue, from: &dyn FieldValue) {
    let from = from.value();
    if matches!(from, FieldRef::Absent) {
        return;
    }
    match (to.place(), from) {
        (FieldMut::Bool(to), FieldRef::Bool(from)) => *to = from,
        (FieldMut::Int32(to), FieldRef::Int(from)) => *to = from as i32,
        (FieldMut::Int64(to), FieldRef::Int(from)) => *to = from,
        (FieldMut::Text(to) | FieldMut::Quantity(to), FieldRef::Text(from)) => from.clone_into(to),
        (FieldMut::IntOrString(to), FieldRef::Int(from)) => *to = IntOrString::Int(from as i32),
        (FieldMut::IntOrString(to), FieldRef::Text(from)) => *to = IntOrString::String(from.to_owned()),
        (FieldMut::Time(to), FieldRef::Time(from)) => *to = from,
        (FieldMut::Bytes(to), FieldRef::Bytes(from)) => from.clone_into(to),
        (FieldMut::Json(to), FieldRef::Json(from)) => *to = from.clone(),
        (FieldMut::List(to), FieldRef::List(from)) => {
            to.reserve(items(from).count());
            items(from).for_each(|item| copy(to.add(), item));
        }
        (FieldMut::Map(to), FieldRef::Map(from)) => from.entries().for_each(|(key, value)| copy(to.entry(key), value)),
        (FieldMut::Object(to), FieldRef::Object(from)) => copy_object(to, from),
        // Both sides have the same type.
        _ => {}
    }
}

/// Copies the fields of an object. `to` must have the default value.
pub fn copy_object(to: &mut dyn AnyObject, from: &dyn AnyObject) {
    for index in 0..from.shape().fields.len() {
        let field = from.field(index);
        if !matches!(field.value(), FieldRef::Absent) {
            copy(to.field_mut(index), field);
        }
    }
}

/// Returns the items of a list.
pub fn items(list: &dyn AnyList) -> impl Iterator<Item = &dyn FieldValue> {
    (0..).map_while(|index| list.item(index))
}

/// Compares two values of one type.
pub fn same(a: &dyn FieldValue, b: &dyn FieldValue) -> bool {
    match (a.value(), b.value()) {
        (FieldRef::Absent, FieldRef::Absent) => true,
        (FieldRef::Bool(a), FieldRef::Bool(b)) => a == b,
        (FieldRef::Int(a), FieldRef::Int(b)) => a == b,
        (FieldRef::Text(a), FieldRef::Text(b)) => a == b,
        (FieldRef::Time(a), FieldRef::Time(b)) => a == b,
        (FieldRef::Bytes(a), FieldRef::Bytes(b)) => a == b,
        (FieldRef::Json(a), FieldRef::Json(b)) => a == b,
        (FieldRef::List(a), FieldRef::List(b)) => {
            let (mut a, mut b) = (items(a), items(b));
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (Some(a), Some(b)) if same(a, b) => {}
                    _ => return false,
                }
            }
        }
        (FieldRef::Map(a), FieldRef::Map(b)) => {
            let (mut a, mut b) = (a.entries(), b.entries());
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (Some((a_key, a)), Some((b_key, b))) if a_key == b_key && same(a, b) => {}
                    _ => return false,
                }
            }
        }
        (FieldRef::Object(a), FieldRef::Object(b)) => same_object(a, b),
        _ => false,
    }
}

/// Compares two objects of one type.
pub fn same_object(a: &dyn AnyObject, b: &dyn AnyObject) -> bool {
    (0..a.shape().fields.len()).all(|index| same(a.field(index), b.field(index)))
}
