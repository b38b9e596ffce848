//! The macro that defines the types of Kubernetes.

/// Defines Kubernetes types: `Name { field: Type = "name in JSON", ... }`. JSON output has the fields in this order.
/// A complete API object has its version before the fields: `Pod of "v1" { ... }`.
macro_rules! kubernetes_types {
    (@identity $name:ident) => { None };
    (@identity $name:ident $version:literal) => {
        Some($crate::api::k8s::field::ObjectIdentity { api_version: $version, kind: stringify!($name) })
    };
    ($($name:ident $(of $version:literal)? { $($field:ident: $type:ty = $json:literal,)* })*) => { $(
        #[derive(Default)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        const _: () = {
            use $crate::api::k8s::field::{self, AnyObject, FieldMut, FieldRef, FieldValue, Shape};
            use $crate::api::k8s::{read, write};

            static SHAPE: Shape = Shape {
                name: stringify!($name),
                identity: kubernetes_types!(@identity $name $($version)?),
                fields: &[$($json,)*],
            };

            #[allow(non_camel_case_types)]
            enum Index { $($field,)* }

            struct At;
            #[allow(non_upper_case_globals)]
            impl At { $(const $field: usize = Index::$field as usize;)* }

            impl AnyObject for $name {
                fn shape(&self) -> &'static Shape {
                    &SHAPE
                }

                fn field(&self, index: usize) -> &dyn FieldValue {
                    match index {
                        $(At::$field => &self.$field,)*
                        _ => unreachable!("an index of Shape::fields"),
                    }
                }

                fn field_mut(&mut self, index: usize) -> &mut dyn FieldValue {
                    match index {
                        $(At::$field => &mut self.$field,)*
                        _ => unreachable!("an index of Shape::fields"),
                    }
                }
            }

            impl FieldValue for $name {
                fn value(&self) -> FieldRef<'_> {
                    FieldRef::Object(self)
                }

                fn place(&mut self) -> FieldMut<'_> {
                    FieldMut::Object(self)
                }
            }

            impl Clone for $name {
                fn clone(&self) -> $name {
                    let mut copy = $name::default();
                    field::copy_object(&mut copy, self);
                    copy
                }
            }

            impl PartialEq for $name {
                fn eq(&self, other: &$name) -> bool {
                    field::same_object(self, other)
                }
            }

            impl std::fmt::Debug for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    write::debug(self, f)
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    write::Json(self).serialize(serializer)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                    read::deserialize(deserializer)
                }
            }
        };
    )* };
}
pub(super) use kubernetes_types;
