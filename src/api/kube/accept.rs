//! The format that a client requests with the header Accept.

use super::status::Failure;

/// The form of an object or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Object,
    /// `as=Table` (meta/v1), which kubectl requests to print lists.
    Table,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`
    Metadata,
}

/// The form of the discovery document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    Legacy,
    /// `as=APIGroupDiscoveryList` in version v2 or v2beta1.
    Aggregated(&'static str),
}

/// The media type that the server offers, for errors.
const JSON: &str = "application/json";

/// # Errors
/// None of the requested types is JSON.
pub fn format(accept: &str) -> Result<Format, Failure> {
    let requested =
        ranges(accept).find_map(|range| match range {
            Range { parameters: [None, ..], json: true } => Some(Format::Object),
            Range { parameters: [Some("Table"), Some("v1") | None, Some("meta.k8s.io") | None], json: true } => {
                Some(Format::Table)
            }
            Range {
                parameters:
                    [
                        Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                        Some("v1") | None,
                        Some("meta.k8s.io") | None,
                    ],
                json: true,
            } => Some(Format::Metadata),
            Range { .. } => None,
        });
    requested.or(accept.trim().is_empty().then_some(Format::Object)).ok_or_else(|| Failure::not_acceptable(JSON))
}

/// # Errors
/// None of the requested types is JSON.
pub fn discovery(accept: &str) -> Result<Discovery, Failure> {
    let requested = ranges(accept).find_map(|range| match range {
        Range { parameters: [None, ..], json: true } => Some(Discovery::Legacy),
        Range { parameters: [Some("APIGroupDiscoveryList"), Some("v2"), Some("apidiscovery.k8s.io")], json: true } => {
            Some(Discovery::Aggregated("v2"))
        }
        Range {
            parameters: [Some("APIGroupDiscoveryList"), Some("v2beta1"), Some("apidiscovery.k8s.io")],
            json: true,
        } => Some(Discovery::Aggregated("v2beta1")),
        Range { .. } => None,
    });
    requested.or(accept.trim().is_empty().then_some(Discovery::Legacy)).ok_or_else(|| Failure::not_acceptable(JSON))
}

/// One media range of the header: whether it includes JSON, and its parameters `as`, `v` and `g`. Weights are ignored,
/// because clients list the types in the order of their preference.
struct Range<'a> {
    json: bool,
    parameters: [Option<&'a str>; 3],
}

fn ranges(accept: &str) -> impl Iterator<Item = Range<'_>> {
    accept.split(',').map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let json = ["application/json", "application/*", "*/*"].iter().any(|m| media.eq_ignore_ascii_case(m));
        let mut parameters = [None; 3];
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            if let Some(at) = ["as", "v", "g"].iter().position(|n| name.eq_ignore_ascii_case(n)) {
                parameters[at] = Some(value);
            }
        }
        Range { json, parameters }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_type_counts() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                     application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        for (accept, expected) in [
            ("", Some(Format::Object)),
            ("*/*", Some(Format::Object)),
            ("application/json, */*", Some(Format::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Format::Object)),
            (table, Some(Format::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Format::Object)),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Some(Format::Metadata)),
            ("application/json;as=Table;v=v9;g=meta.k8s.io", None),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
            (",;=", None),
        ] {
            assert_eq!(format(accept).ok(), expected, "{accept}");
        }
        assert_eq!(format("text/html").unwrap_err().code, 406);
    }

    #[test]
    fn kubectl_gets_the_newest_discovery_that_it_requests() {
        let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                   application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(new), Ok(Discovery::Aggregated("v2")));
        let (_, old) = new.split_once(',').unwrap();
        assert_eq!(discovery(old), Ok(Discovery::Aggregated("v2beta1")));
        assert_eq!(discovery("application/json, */*"), Ok(Discovery::Legacy));
        assert!(discovery("application/yaml").is_err());
    }
}
