//! Bootstrap tokens and the pin of a CA, in kubeadm's formats, and the message authentication code with which a
//! cluster signs its `cluster-info` for the owner of a token.

use sha2::{Digest, Sha256};
use std::fmt;

/// The block size of SHA-256, in bytes.
const BLOCK: usize = 64;

/// A bootstrap token: `ID.SECRET`. The id is public, the secret is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
}

/// Omits the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    /// Reads `[a-z0-9]{6}.[a-z0-9]{16}`.
    ///
    /// # Errors
    /// The text has another format. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Token, String> {
        let part = |text: &str, length| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match text.split_once('.') {
            Some((id, secret)) if part(id, 6) && part(secret, 16) => {
                Ok(Token { id: id.to_owned(), secret: secret.to_owned() })
            }
            _ => Err("a bootstrap token has 6 lower-case letters or digits, a dot, and 16 more of them; \
                      kubeadm token create --print-join-command prints a new one"
                .to_owned()),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns `ID.SECRET`, the bearer token of a request.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// Reports whether `code` is the HMAC-SHA256 of the message with the secret.
    pub fn has_signed(&self, message: &[u8], code: &[u8]) -> bool {
        let expected = hmac_sha256(self.secret.as_bytes(), message);
        // The comparison takes constant time, because the expected value is secret.
        code.len() == expected.len() && code.iter().zip(expected).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
    }
}

/// The SHA-256 hash of the public key (SubjectPublicKeyInfo in DER) of a CA.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaHash([u8; 32]);

impl CaHash {
    /// Reads `sha256:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// The text has another format.
    pub fn parse(text: &str) -> Result<CaHash, String> {
        let digits = text.strip_prefix("sha256:").filter(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit()));
        let wrong = || "write it as sha256: and 64 hexadecimal digits".to_owned();
        let digits = digits.ok_or_else(wrong)?;
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(CaHash(hash))
    }

    /// Returns the hash of this public key.
    pub fn of(public_key: &[u8]) -> CaHash {
        CaHash(sha256(public_key))
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Computes the HMAC of a message (RFC 2104).
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// RFC 4231, test cases 1, 2 and 6.
    #[test]
    fn the_code_is_that_of_the_standard() {
        for (key, message, code) in [
            (vec![0x0b; 20], "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe".to_vec(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&hmac_sha256(&key, message.as_bytes())), code);
        }
    }

    #[test]
    fn a_token_signs_with_its_secret() {
        let token = Token::parse("07401b.f395accd246ae52d").unwrap();
        let code = hmac_sha256(b"f395accd246ae52d", b"message");
        assert!(token.has_signed(b"message", &code));
        for (message, code) in [(&b"massage"[..], &code[..]), (b"message", &code[1..]), (b"message", b"")] {
            assert!(!token.has_signed(message, code));
        }
        assert_eq!((token.id(), token.bearer().as_str()), ("07401b", "07401b.f395accd246ae52d"));
        assert_eq!(format!("{token:?}"), "Token(07401b)");
    }

    #[test]
    fn other_tokens_are_refused_and_not_repeated() {
        for text in [
            "",
            ".",
            "07401b",
            "07401B.f395accd246ae52d",
            "07401b.f395accd246ae52",
            "07401b.f395accd246ae52d ",
            "07401ä.f395accd246ae52d",
        ] {
            let error = Token::parse(text).unwrap_err();
            assert!(text.len() < 3 || !error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_pin_is_the_hash_of_a_public_key() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(CaHash::parse(text), Ok(CaHash::of(b"abc")));
        assert_eq!(CaHash::of(b"abc").to_string(), text);
        assert_eq!(CaHash::parse(&text.to_uppercase().replace("SHA256", "sha256")), Ok(CaHash::of(b"abc")));
        for text in ["", "sha256:", "sha1:ab", &text[..70], &text[7..], &format!("{}ää", &text[..67])] {
            assert!(CaHash::parse(text).is_err(), "{text}");
        }
    }
}
