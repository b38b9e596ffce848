//! Seals records (C15) with ChaCha20-Poly1305, which is fast even on processors without AES instructions.
//!
//! A sealed file begins with a line of text: a magic word, the version of this format, and the id of the key. A nonce
//! of 96 random bits, the encrypted value and its tag follow. The associated data are that line and the name of the
//! record, `kind/name`, which contains the namespace and name of a Secret or the UID of a pod. A file can therefore be
//! opened only as the record that it was written for. An older file of the same record can be opened too.
//!
//! The key is derived from a credential with HKDF-SHA256, so a credential may have any form with enough random bytes.
//! The id of a key is derived too, and does not reveal the key. It distinguishes a file that is sealed with another
//! key, which has to be kept, from a damaged one.

use crate::api::uid;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;

const MAGIC: &str = "wherry-sealed";
/// The version of this format.
const VERSION: &str = "1";
/// The minimum length of a credential, in bytes.
pub const MIN_CREDENTIAL: usize = 32;
/// The maximum length of a credential, in bytes.
const MAX_CREDENTIAL: usize = 4096;
const SALT: &[u8] = b"wherry records";
const ID_BYTES: usize = 8;

/// The key of the service.
pub struct SealKey {
    /// The id of the key, in hexadecimal digits.
    id: String,
    aead: LessSafeKey,
    random: SystemRandom,
}

/// Omits the key itself.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

/// Why a sealed file cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The file is sealed with another key.
    OtherKey,
    /// The file has another version of the format.
    Version(String),
    /// The file was changed or truncated, or belongs to another record.
    Damaged,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::OtherKey => f.write_str("it is sealed with a different key"),
            OpenError::Version(found) => write!(f, "sealed with format {found:?}, expected {VERSION}"),
            OpenError::Damaged => {
                f.write_str("the seal is broken: the file is damaged, or belongs to a different record")
            }
        }
    }
}

/// The length of an HKDF output.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl SealKey {
    /// Derives the key from a credential.
    ///
    /// # Errors
    /// The credential is too short or too long for a key. The message does not contain the credential.
    pub fn of_credential(credential: &[u8]) -> Result<SealKey, String> {
        let length = credential.len();
        if !(MIN_CREDENTIAL..=MAX_CREDENTIAL).contains(&length) {
            return Err(format!(
                "it has {length} bytes; it must have {MIN_CREDENTIAL} to {MAX_CREDENTIAL} random bytes"
            ));
        }
        let source = Salt::new(HKDF_SHA256, SALT).extract(credential);
        let derive = |purpose: &[u8], out: &mut [u8]| {
            let info = [purpose];
            source.expand(&info, Length(out.len())).and_then(|derived| derived.fill(out))
        };
        let (mut key, mut id) = ([0; 32], [0; ID_BYTES]);
        let failed = |_| "the key cannot be derived".to_owned();
        derive(b"key", &mut key).and_then(|()| derive(b"id", &mut id)).map_err(failed)?;
        let aead = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(failed)?;
        Ok(SealKey { id: uid::hex(&id), aead: LessSafeKey::new(aead), random: SystemRandom::new() })
    }

    /// Returns the content of a sealed file. `name` is `kind/name`.
    ///
    /// # Errors
    /// The kernel provides no random numbers, or the value is too long.
    pub fn seal(&self, name: &str, value: &str) -> Result<Vec<u8>, String> {
        let header = format!("{MAGIC} {VERSION} {}\n", self.id);
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| "the kernel provides no random numbers".to_owned())?;
        let mut content = Vec::with_capacity(header.len() + NONCE_LEN + value.len() + CHACHA20_POLY1305.tag_len());
        content.extend_from_slice(header.as_bytes());
        content.extend_from_slice(&nonce);
        let begin = content.len();
        content.extend_from_slice(value.as_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.aead.seal_in_place_separate_tag(nonce, associated(&header, name), &mut content[begin..]);
        content.extend_from_slice(tag.map_err(|_| "the value is too long to be sealed".to_owned())?.as_ref());
        Ok(content)
    }

    /// Returns the value of a sealed file.
    ///
    /// # Errors
    /// See `OpenError`.
    pub fn open(&self, name: &str, content: &[u8]) -> Result<String, OpenError> {
        let header = Header::read(content)?;
        if header.key != self.id {
            return Err(OpenError::OtherKey);
        }
        let (nonce, sealed) = header.rest.split_at_checked(NONCE_LEN).ok_or(OpenError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Damaged)?;
        let mut value = sealed.to_vec();
        let opened = self.aead.open_in_place(nonce, associated(header.line, name), &mut value);
        let length = opened.map_err(|_| OpenError::Damaged)?.len();
        value.truncate(length);
        String::from_utf8(value).map_err(|_| OpenError::Damaged)
    }
}

/// Reports whether the content belongs to a sealed file, even a damaged one.
pub fn is_sealed(content: &[u8]) -> bool {
    content.strip_prefix(MAGIC.as_bytes()).is_some_and(|rest| rest.starts_with(b" "))
}

/// Checks a sealed file as far as that is possible without its key.
///
/// # Errors
/// The first line is damaged or has another version.
pub fn check(content: &[u8]) -> Result<(), OpenError> {
    Header::read(content).map(|_| ())
}

fn associated(header: &str, name: &str) -> Aad<Vec<u8>> {
    // The header ends with a line break and contains no other one, so the boundary is unambiguous.
    Aad::from([header.as_bytes(), name.as_bytes()].concat())
}

struct Header<'c> {
    /// The first line, including its line break.
    line: &'c str,
    key: &'c str,
    rest: &'c [u8],
}

impl<'c> Header<'c> {
    fn read(content: &'c [u8]) -> Result<Header<'c>, OpenError> {
        let end = content.iter().take(100).position(|byte| *byte == b'\n').ok_or(OpenError::Damaged)?;
        let (line, rest) = content.split_at(end + 1);
        let line = std::str::from_utf8(line).map_err(|_| OpenError::Damaged)?;
        let mut words = line.trim_end_matches('\n').split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(MAGIC), Some(VERSION), Some(key), None) if key.len() == 2 * ID_BYTES => {
                Ok(Header { line, key, rest })
            }
            (Some(MAGIC), Some(version), ..) if version != VERSION => Err(OpenError::Version(version.to_owned())),
            _ => Err(OpenError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "objects/secret.shop.keys";

    fn key(byte: u8) -> SealKey {
        SealKey::of_credential(&[byte; 32]).unwrap()
    }

    #[test]
    fn a_value_is_sealed_and_opened() {
        for value in ["", "hunter2", &"é".repeat(500_000)] {
            let content = key(1).seal(NAME, value).unwrap();
            assert!(is_sealed(&content) && check(&content).is_ok());
            assert!(value.is_empty() || !content.windows(7).any(|part| part == b"hunter2"));
            assert_eq!(key(1).open(NAME, &content).as_deref(), Ok(value));
            assert_eq!(content.len(), "wherry-sealed 1 0123456789abcdef\n".len() + 12 + value.len() + 16);
        }
        let twice = [key(1).seal(NAME, "a").unwrap(), key(1).seal(NAME, "a").unwrap()];
        assert_ne!(twice[0], twice[1], "each write has a nonce of its own");
    }

    #[test]
    fn each_changed_byte_and_each_length_is_noticed() {
        let content = key(1).seal(NAME, "hunter2").unwrap();
        for at in 0..content.len() {
            for bit in [1, 0x80] {
                let mut changed = content.clone();
                changed[at] ^= bit;
                assert!(key(1).open(NAME, &changed).is_err(), "byte {at}");
            }
            assert!(key(1).open(NAME, &content[..at]).is_err(), "length {at}");
        }
        let longer = [content.as_slice(), b"\0"].concat();
        assert_eq!(key(1).open(NAME, &longer), Err(OpenError::Damaged));
    }

    #[test]
    fn a_file_of_another_record_key_or_version_does_not_open() {
        let content = key(1).seal(NAME, "hunter2").unwrap();
        assert_eq!(key(1).open("objects/secret.shop.key", &content), Err(OpenError::Damaged));
        assert_eq!(key(2).open(NAME, &content), Err(OpenError::OtherKey));
        let later = [b"wherry-sealed 2 new form\n".as_slice(), &content[33..]].concat();
        assert_eq!(key(1).open(NAME, &later), Err(OpenError::Version("2".into())));
        // A header with the id of another key does not help.
        let forged = [format!("wherry-sealed 1 {}\n", key(2).id).as_bytes(), &content[33..]].concat();
        assert_eq!(key(2).open(NAME, &forged), Err(OpenError::Damaged));
        for hostile in
            [b"".as_slice(), b"wherry-sealed", b"wherry-sealed 1\n", b"wherry-sealed 1 a b\n", b"{}\n", &[0xff; 300]]
        {
            assert!(key(1).open(NAME, hostile).is_err() && check(hostile).is_err(), "{hostile:?}");
        }
        assert!(!is_sealed(b"{\"version\":1}") && !is_sealed(b"wherry-sealed2 "));
    }

    #[test]
    fn a_credential_that_is_no_key_is_refused_and_never_shown() {
        for length in [0, 31, 4097] {
            let error = SealKey::of_credential(&vec![b'h'; length]).unwrap_err();
            assert_eq!(error, format!("it has {length} bytes; it must have 32 to 4096 random bytes"));
        }
        assert_eq!(key(1).id, key(1).id);
        assert_ne!(key(1).id, key(2).id);
        let shown = format!("{:?}", key(1));
        assert!(shown.len() == "Key()".len() + 16, "{shown}");
    }
}
