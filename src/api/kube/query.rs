//! The query of a request: `name=value` pairs with percent-encoding.

/// The decoded pairs, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query. Invalid percent-encoding stays as it is, as in a browser; bytes that are not UTF-8 become
    /// U+FFFD.
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// Returns the first value of `name`, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// Adds a pair.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Query {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean as an API server reads it: `false` and `0` are false, every other value is true.
    pub fn flag(&self, name: &str) -> bool {
        self.first(name).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    /// Returns the number in a parameter. None if the parameter is missing or empty.
    ///
    /// # Errors
    /// The value is not a number, or is negative.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let parse = |value: &str| value.parse().map_err(|_| format!("{name}: invalid number {value:?}"));
        self.get(name).map(parse).transpose()
    }
}

/// Decodes percent-encoding. With `form`, also decodes `+` as a space.
pub fn decode(text: &str, form: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
                continue;
            }
            (b'+', ..) if form => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query =
            Query::parse("command=sh&command=-c&command=echo+a%20%26%2bb&x=%zz%4&watch=true&a=&limit=500&n=-1&%6e=2");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a &+b"]);
        assert_eq!((query.get("x"), query.get("a"), query.get("b")), (Some("%zz%4"), None, None));
        assert!(query.flag("watch") && !query.flag("b") && query.flag("a"));
        assert_eq!(query.number("limit"), Ok(Some(500)));
        assert!(query.number("n").is_err());
        assert_eq!(query.all("n").collect::<Vec<_>>(), ["-1", "2"]);
        assert_eq!(decode("a+b%ff", false), "a+b\u{fffd}");
    }
}
