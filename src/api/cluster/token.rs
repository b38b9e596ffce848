//! A token of a service account: its identity, the answer of the API server, and its copy on the disk.

use crate::api::hash;
use crate::api::k8s::{ServiceAccountTokenProjection, Time};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::registry_credentials::base64;
use crate::api::time::Wall;
use serde::{Deserialize, Serialize, Serializer};
use std::rc::Rc;
use std::time::Duration;

/// The kind of these records. A key is `tokens/UID.HASH`.
pub const KIND: &str = "tokens";
const VERSION: u64 = 1;
/// As in a kubelet, a token is replaced after at most a day.
const LONGEST_USE: Duration = Duration::from_secs(24 * 3600);
/// The lifetime of a token whose source specifies none, in seconds. This is a kubelet's default.
const LIFETIME: i64 = 3600;

/// Identifies a token: two sources of a pod with the same audience and lifetime share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenKey {
    /// The UID of the pod.
    pub uid: Uid,
    /// None: the API server itself.
    pub audience: Option<Box<str>>,
    /// The requested lifetime.
    pub seconds: u64,
}

/// Serialized as a string, because it is used as a map key in the state dump.
impl Serialize for TokenKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TokenKey { uid, audience, seconds } = self;
        let audience = audience.as_deref().unwrap_or_default();
        serializer.collect_str(&format_args!("{uid} {seconds} s {audience}"))
    }
}

impl TokenKey {
    pub fn of(pod: &Pod, source: &ServiceAccountTokenProjection) -> TokenKey {
        let audience = source.audience.as_deref().filter(|text| !text.is_empty());
        let seconds = source.expiration_seconds.unwrap_or(LIFETIME);
        TokenKey {
            uid: pod.uid.clone(),
            audience: audience.map(Into::into),
            seconds: u64::try_from(seconds).unwrap_or_default(),
        }
    }
}

/// A token that the server has issued.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    pub token: Rc<str>,
    /// When the answer arrived, by the clock of the node.
    pub issued: Wall,
    /// The lifetime that the server granted.
    pub lifetime: Duration,
    /// The time after `issued` for which the server accepts the token: longer than `lifetime` with
    /// `--service-account-extend-token-expiration`.
    pub valid: Duration,
}

/// Omits the token.
impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grant({:?} at {:?})", self.valid, self.issued)
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    spec: Option<Spec>,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    expiration_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    expiration_timestamp: Time,
}

/// The payload of a JSON Web Token.
#[derive(Deserialize)]
struct Claims {
    exp: Option<i64>,
}

impl Grant {
    /// Reads the answer to a request for a token. `requested`: the lifetime in the request.
    ///
    /// # Errors
    /// The answer is not a `TokenRequest` with a token. The error shows no part of the answer.
    pub fn read(body: &[u8], requested: Duration, now: Wall) -> Result<Grant, String> {
        let unusable = || "the response is not a TokenRequest with a token".to_owned();
        let TokenAnswer { spec, status } = serde_json::from_slice(body).map_err(|_| unusable())?;
        if status.token.is_empty() {
            return Err(unusable());
        }
        let granted = spec.and_then(|spec| spec.expiration_seconds).filter(|seconds| *seconds > 0);
        let lifetime = granted.map_or(requested, Duration::from_secs);
        // The node's clock may differ from the server's, so only differences between the server's times are used.
        let extension = expiration(&status.token).map(|exp| exp - status.expiration_timestamp.0.as_second());
        let extension = Duration::from_secs(extension.and_then(|s| u64::try_from(s).ok()).unwrap_or(0));
        Ok(Grant { token: status.token.into(), issued: now, lifetime, valid: lifetime.saturating_add(extension) })
    }

    /// Returns the age at which the token is replaced: 80 % of its lifetime, but at most a day.
    pub fn renewal(&self) -> Duration {
        (self.lifetime * 4 / 5).min(LONGEST_USE)
    }
}

/// Returns the claim `exp`, in seconds since the Unix epoch. None if the token has another format.
fn expiration(token: &str) -> Option<i64> {
    // Converts from the base64 alphabet for URLs (RFC 7515).
    let payload = base64(&token.split('.').nth(1)?.replace('-', "+").replace('_', "/"))?;
    serde_json::from_str::<Claims>(&payload).ok()?.exp
}

/// A token with everything that is needed to renew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub key: TokenKey,
    pub pod: FullName,
    pub account: Box<str>,
    pub grant: Grant,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    version: u64,
    namespace: String,
    pod: String,
    uid: String,
    account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audience: Option<String>,
    seconds: u64,
    issued: i64,
    lifetime: u64,
    valid: u64,
    token: String,
}

/// Returns the key of the record.
pub fn key(of: &TokenKey) -> String {
    let source = format!("{} {}", of.seconds, of.audience.as_deref().unwrap_or_default());
    format!("{KIND}/{}.{:08x}", of.uid, hash::fnv1a(source.as_bytes()))
}

impl TokenRecord {
    pub fn write(&self) -> String {
        let TokenRecord { key, pod, account, grant } = self;
        let text = Text {
            version: VERSION,
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            uid: key.uid.to_string(),
            account: account.to_string(),
            audience: key.audience.as_deref().map(str::to_owned),
            seconds: key.seconds,
            issued: grant.issued.0,
            lifetime: grant.lifetime.as_secs(),
            valid: grant.valid.as_secs(),
            token: grant.token.to_string(),
        };
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// # Errors
    /// The text is not a record of this version. The error shows no part of the text.
    pub fn read(text: &str) -> Result<TokenRecord, String> {
        let text: Text = serde_json::from_str(text).map_err(|_| "it is not a token".to_owned())?;
        if text.version != VERSION {
            return Err(format!("it is not of version {VERSION}"));
        }
        let key = TokenKey { uid: Uid::from(text.uid), audience: text.audience.map(Into::into), seconds: text.seconds };
        let grant = Grant {
            token: text.token.into(),
            issued: Wall(text.issued),
            lifetime: Duration::from_secs(text.lifetime),
            valid: Duration::from_secs(text.valid),
        };
        Ok(TokenRecord { key, pod: FullName::new(&text.namespace, &text.pod), account: text.account.into(), grant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOUR: Duration = Duration::from_secs(3607);

    fn answer(exp: Option<i64>) -> Vec<u8> {
        let text = json!({ "exp": exp, "sub": "\u{fc}\u{ff}?>" }).to_string().into_bytes();
        let encoded = json!(crate::api::k8s::ByteString(text)).as_str().unwrap().to_owned();
        let payload = encoded.trim_end_matches('=').replace('+', "-").replace('/', "_");
        json!({
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3607 },
            "status": { "token": format!("e30.{payload}.c2ln"), "expirationTimestamp": "2027-01-15T09:00:07Z" },
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn the_server_may_accept_a_token_longer_than_it_says() {
        // 2027-01-15T09:00:07Z
        let expiration = 1_800_003_607;
        for (exp, extension) in [(Some(expiration), 0), (Some(expiration + 31_532_393), 31_532_393), (None, 0)] {
            let grant = Grant::read(&answer(exp), HOUR, Wall(1)).unwrap();
            assert_eq!((grant.lifetime, grant.valid.as_secs()), (HOUR, 3607 + extension));
            assert_eq!(grant.renewal().as_secs(), 2885);
        }
        let long = Grant { lifetime: HOUR * 100, ..Grant::read(&answer(None), HOUR, Wall(1)).unwrap() };
        assert_eq!(long.renewal(), LONGEST_USE);
    }

    #[test]
    fn an_unusable_answer_is_not_shown() {
        for body in ["", "{}", r#"{"status":{"token":"hunter2"}}"#, r#"["hunter2"]"#] {
            let error = Grant::read(body.as_bytes(), HOUR, Wall(1)).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_token_survives_on_the_disk() {
        let grant = Grant::read(&answer(None), HOUR, Wall(5)).unwrap();
        let of = TokenKey { uid: Uid::from("u-1"), audience: Some("vault".into()), seconds: 3607 };
        let record =
            TokenRecord { key: of.clone(), pod: FullName::new("shop", "web"), account: "default".into(), grant };
        assert_eq!(TokenRecord::read(&record.write()), Ok(record.clone()));
        assert!(!format!("{record:?}").contains("e30"));
        assert_ne!(key(&of), key(&TokenKey { audience: None, ..of.clone() }));
        assert!(key(&of).starts_with("tokens/u-1."));
        assert!(TokenRecord::read("{}").is_err() && TokenRecord::read("").is_err());
    }
}
