//! Splits a list while it arrives: delivers each element of the top-level array `items` of a JSON object as soon as
//! it is complete, and the rest of the object at the end. At most one element is held.
//!
//! The splitter understands only as much JSON as it needs to find the ends of values. It does not check the values:
//! the reader of an element finds its errors.

use std::fmt;
use std::ops::ControlFlow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Not a JSON object with an array `items`. The position is in bytes from the start.
    Malformed { at: u64 },
    /// The input ends inside the object.
    Truncated,
    /// An element, or the rest of the object, is larger than the limit.
    TooLarge,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Malformed { at } => write!(f, "not a valid JSON list (at byte {at})"),
            Broken::Truncated => f.write_str("the list is cut short"),
            Broken::TooLarge => f.write_str("an item of the list is too large"),
        }
    }
}

#[derive(Debug)]
pub struct Items {
    /// The maximum size of an element, and of the rest, in bytes.
    limit: usize,
    state: ParserState,
    /// The key or the element that is being read.
    piece: Vec<u8>,
    /// The object without `items`.
    rest: Vec<u8>,
    /// `items` was found.
    found: bool,
    /// Bytes read.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum ParserState {
    Start,
    /// Before a key. `first`: the object may end here.
    Key {
        first: bool,
    },
    InKey(Text),
    Colon,
    /// Before the value of a key other than `items`, which belongs to the rest.
    Value,
    InValue(Nesting),
    AfterValue,
    ItemsValue,
    /// The number of letters of `null` that have been read.
    Null(usize),
    /// Before an element. `first`: the array may end here.
    Item {
        first: bool,
    },
    InItem(Nesting),
    AfterItem,
    End,
}

/// The position in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    /// After a backslash.
    Escaped,
}

/// The position in a value.
#[derive(Clone, Copy, Debug)]
enum Nesting {
    /// A number, `true`, `false` or `null`. It ends before the next separator.
    Scalar,
    /// A string outside of arrays and objects.
    Text(Text),
    /// In an array or an object. `depth`: the number of open arrays and objects. `text`: Some in a string.
    Open { depth: u32, text: Option<Text> },
}

const NULL: &[u8] = b"null";

impl Items {
    pub fn new(limit: usize) -> Items {
        Items { limit, state: ParserState::Start, piece: Vec::new(), rest: Vec::new(), found: false, at: 0 }
    }

    /// Calls `item` for each element that is complete.
    ///
    /// # Errors
    /// The list is broken; `self` cannot be used any more.
    pub fn push(&mut self, mut bytes: &[u8], item: &mut impl FnMut(Vec<u8>)) -> Result<(), Broken> {
        while let Some(first) = bytes.first() {
            let used = match &mut self.state {
                ParserState::InValue(nesting) => {
                    let (used, complete) = nesting.advance(bytes);
                    copy(bytes, used, &mut self.rest, self.limit)?;
                    if complete {
                        self.state = ParserState::AfterValue;
                    }
                    used
                }
                ParserState::InItem(nesting) => {
                    let (used, complete) = nesting.advance(bytes);
                    copy(bytes, used, &mut self.piece, self.limit)?;
                    if complete {
                        self.state = ParserState::AfterItem;
                        item(std::mem::take(&mut self.piece));
                    }
                    used
                }
                _ => {
                    self.state = self.next(*first)?;
                    // The first byte of a value is read together with the rest of the value.
                    usize::from(!matches!(self.state, ParserState::InValue(_) | ParserState::InItem(_)))
                }
            };
            self.at += used as u64;
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the object without `items`. The caller calls this after the last byte.
    ///
    /// # Errors
    /// The object is not complete.
    pub fn finish(self) -> Result<Vec<u8>, Broken> {
        if matches!(self.state, ParserState::End) { Ok(self.rest) } else { Err(Broken::Truncated) }
    }

    /// Returns the state after one byte outside of values.
    fn next(&mut self, byte: u8) -> Result<ParserState, Broken> {
        let state = self.state;
        if let ParserState::InKey(text) = state {
            copy(&[byte], 1, &mut self.piece, self.limit)?;
            return match text.after(byte) {
                ControlFlow::Continue(text) => Ok(ParserState::InKey(text)),
                ControlFlow::Break(()) => Ok(ParserState::Colon),
            };
        }
        if byte.is_ascii_whitespace() && !matches!(state, ParserState::Null(_)) {
            return Ok(state);
        }
        let malformed = Broken::Malformed { at: self.at };
        match (state, byte) {
            (ParserState::Start, b'{') => {
                self.rest.push(byte);
                Ok(ParserState::Key { first: true })
            }
            (ParserState::Key { .. }, b'"') => {
                self.piece.push(byte);
                Ok(ParserState::InKey(Text::Plain))
            }
            (ParserState::Key { first: true } | ParserState::AfterValue, b'}') => {
                self.rest.push(byte);
                Ok(ParserState::End)
            }
            (ParserState::Colon, b':') => self.member().ok_or(malformed),
            (ParserState::Value, _) => Nesting::begin(byte).map(ParserState::InValue).ok_or(malformed),
            (ParserState::AfterValue, b',') => Ok(ParserState::Key { first: false }),
            (ParserState::ItemsValue, b'[') => Ok(ParserState::Item { first: true }),
            (ParserState::ItemsValue, b'n') => Ok(ParserState::Null(1)),
            (ParserState::Null(read), _) if NULL.get(read) == Some(&byte) => {
                Ok(if read + 1 == NULL.len() { ParserState::AfterValue } else { ParserState::Null(read + 1) })
            }
            (ParserState::Item { first: true } | ParserState::AfterItem, b']') => Ok(ParserState::AfterValue),
            (ParserState::Item { .. }, _) => Nesting::begin(byte).map(ParserState::InItem).ok_or(malformed),
            (ParserState::AfterItem, b',') => Ok(ParserState::Item { first: false }),
            _ => Err(malformed),
        }
    }

    /// Returns the state after a key and its colon. None if `items` occurs twice.
    fn member(&mut self) -> Option<ParserState> {
        let key = std::mem::take(&mut self.piece);
        if serde_json::from_slice::<String>(&key).is_ok_and(|key| key == "items") {
            return (!std::mem::replace(&mut self.found, true)).then_some(ParserState::ItemsValue);
        }
        if self.rest.len() > 1 {
            self.rest.push(b',');
        }
        self.rest.extend_from_slice(&key);
        self.rest.push(b':');
        Some(ParserState::Value)
    }
}

fn copy(bytes: &[u8], used: usize, to: &mut Vec<u8>, limit: usize) -> Result<(), Broken> {
    if to.len() + used > limit {
        return Err(Broken::TooLarge);
    }
    to.extend_from_slice(bytes.get(..used).unwrap_or_default());
    Ok(())
}

impl Text {
    /// Returns the position after one byte. Break: the string has ended.
    fn after(self, byte: u8) -> ControlFlow<(), Text> {
        match (self, byte) {
            (Text::Escaped, _) => ControlFlow::Continue(Text::Plain),
            (Text::Plain, b'\\') => ControlFlow::Continue(Text::Escaped),
            (Text::Plain, b'"') => ControlFlow::Break(()),
            (Text::Plain, _) => ControlFlow::Continue(Text::Plain),
        }
    }
}

impl Nesting {
    /// Returns the position before the first byte of a value. None if no value begins with this byte.
    fn begin(byte: u8) -> Option<Nesting> {
        match byte {
            // `advance` reads the opening bracket or quote.
            b'{' | b'[' => Some(Nesting::Open { depth: 0, text: None }),
            b'"' => Some(Nesting::Text(Text::Escaped)),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Some(Nesting::Scalar),
            _ => None,
        }
    }

    /// Reads more bytes. Returns the number of bytes that belong to the value, and whether the value is complete.
    fn advance(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            let ended = match self {
                Nesting::Scalar => {
                    if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() {
                        return (at, true);
                    }
                    false
                }
                Nesting::Text(text) => match text.after(*byte) {
                    ControlFlow::Continue(next) => {
                        *text = next;
                        false
                    }
                    ControlFlow::Break(()) => true,
                },
                Nesting::Open { text: slot @ Some(_), .. } => {
                    *slot = slot.and_then(|text| text.after(*byte).continue_value());
                    false
                }
                Nesting::Open { depth, text } => match byte {
                    b'"' => {
                        *text = Some(Text::Plain);
                        false
                    }
                    b'{' | b'[' => {
                        *depth = depth.saturating_add(1);
                        false
                    }
                    b'}' | b']' => {
                        *depth = depth.saturating_sub(1);
                        *depth == 0
                    }
                    _ => false,
                },
            };
            if ended {
                return (at + 1, true);
            }
        }
        (bytes.len(), false)
    }
}

#[cfg(test)]
mod tests;
