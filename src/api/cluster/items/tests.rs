use super::*;

/// Returns the elements and the rest of a list that arrives in these pieces.
fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Result<(Vec<String>, String), Broken> {
    let mut items = Items::new(limit);
    let mut out = Vec::new();
    for piece in pieces {
        items.push(piece, &mut |item| out.push(String::from_utf8(item).unwrap()))?;
    }
    Ok((out, String::from_utf8(items.finish()?).unwrap()))
}

fn whole(text: &str) -> Result<(Vec<String>, String), Broken> {
    split([text.as_bytes()], 1000)
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

const LIST: &str = r#" {"kind":"PodList","metadata":{"resourceVersion":"7","items":[1]},
    "items" : [ {"a":"]}\"\\","b":[{},[]]} ,
    17, "x]\"\\", null,{"items":[{}]} ,true] , "more":[{"x":"}"}],"n":-1.5e3}
"#;

fn expected() -> (Vec<String>, String) {
    let items = [r#"{"a":"]}\"\\","b":[{},[]]}"#, "17", r#""x]\"\\""#, "null", r#"{"items":[{}]}"#, "true"];
    let rest = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","items":[1]},"more":[{"x":"}"}],"n":-1.5e3}"#;
    (texts(&items), rest.to_owned())
}

#[test]
fn the_items_and_the_rest_are_found_at_every_split() {
    let bytes = LIST.as_bytes();
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(split(pieces, 1000), Ok(expected()), "{first} {second}");
        }
    }
}

#[test]
fn the_items_and_the_rest_are_found_in_pieces_of_random_sizes() {
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..2000 {
        let mut rest = LIST.as_bytes();
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            // xorshift64.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (piece, more) = rest.split_at(usize::try_from(random % 9).unwrap().min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        assert_eq!(split(pieces, 1000), Ok(expected()));
    }
}

#[test]
fn an_item_is_delivered_as_soon_as_it_is_complete() {
    let mut items = Items::new(100);
    let mut out = Vec::new();
    items.push(b"{\"items\":[{\"a\":1}", &mut |item| out.push(item)).unwrap();
    assert_eq!(out, [b"{\"a\":1}"]);
    assert_eq!(items.finish(), Err(Broken::Truncated));
}

#[test]
fn a_list_without_items_is_empty() {
    for text in [r#"{"items":null,"a":1}"#, r#"{"items":[],"a":1}"#, r#"{"a":1}"#, r#"{"a" : 1 , "items" : [ ] }"#] {
        assert_eq!(whole(text), Ok((vec![], r#"{"a":1}"#.to_owned())), "{text}");
    }
    assert_eq!(whole("{}"), Ok((vec![], "{}".to_owned())));
    assert_eq!(whole(r#"{"items":[1]}"#), Ok((texts(&["1"]), "{}".to_owned())));
    // The key `items` with an escape, and keys that only resemble it.
    assert_eq!(whole(r#"{"\u0069tems":[1]}"#), Ok((texts(&["1"]), "{}".to_owned())));
    let other = r#"{"items\"":[1],"Items":[2]}"#;
    assert_eq!(whole(other), Ok((vec![], other.to_owned())));
}

#[test]
fn every_truncated_list_is_an_error() {
    let text = LIST.trim_end();
    for end in 0..text.len() {
        assert_eq!(whole(&text[..end]), Err(Broken::Truncated), "{end}");
    }
}

#[test]
fn other_texts_are_errors_with_their_position() {
    for (text, at) in [
        ("[]", 0),
        ("null", 0),
        ("\u{feff}{}", 0),
        ("{}{}", 2),
        ("{1:2}", 1),
        ("{,}", 1),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        (r#"{"a":}"#, 5),
        (r#"{"items":{}}"#, 9),
        (r#"{"items":nil}"#, 10),
        (r#"{"items":[1,]}"#, 12),
        (r#"{"items":[1}"#, 11),
        (r#"{"items":["a" "b"]}"#, 14),
        (r#"{"items":[],"items":[1]}"#, 19),
    ] {
        assert_eq!(whole(text), Err(Broken::Malformed { at }), "{text}");
    }
}

#[test]
fn an_item_and_the_rest_have_a_limit() {
    let list = r#"{"items":[{"a":"12345"},{"a":"1"}],"b":1}"#;
    assert!(split([list.as_bytes()], 13).is_ok());
    assert_eq!(split([list.as_bytes()], 12), Err(Broken::TooLarge));
    // The sizes of the items are not added up.
    let many = format!(r#"{{"items":[{}1]}}"#, "1,".repeat(10_000));
    assert_eq!(split([many.as_bytes()], 10).map(|(items, _)| items.len()), Ok(10_001));
    let rest = format!(r#"{{"a":"{}"}}"#, "x".repeat(100));
    assert_eq!(split([rest.as_bytes()], 50), Err(Broken::TooLarge));
    let key = format!(r#"{{"{}":1}}"#, "x".repeat(100));
    assert_eq!(split([key.as_bytes()], 50), Err(Broken::TooLarge));
    let value = format!(r#"{{{}"z":1}}"#, r#""a":1,"#.repeat(20));
    assert_eq!(split([value.as_bytes()], 50), Err(Broken::TooLarge));
}

#[test]
fn random_bytes_never_panic() {
    let mut random: u64 = 1;
    let alphabet = br#"{}[]",:\ntul1 items"#;
    for _ in 0..20_000 {
        let mut text = br#"{"items":["#.to_vec();
        for _ in 0..12 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push(alphabet[usize::try_from(random >> 33).unwrap() % alphabet.len()]);
        }
        let _ = Items::new(100).push(&text, &mut |_| {});
    }
}
