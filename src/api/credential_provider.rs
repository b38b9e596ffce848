//! A credential provider: a program that returns credentials for images of some registries (kubelet: exec credential
//! providers, `credentialprovider.kubelet.k8s.io`). This module builds its request and reads its response.

use crate::api::duration;
use crate::api::registry_credentials::{self, Keyring, matches};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The API versions of request and response. Apart from these names, the versions are identical.
pub const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// A provider as configured.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// The name of the program in the directory of providers.
    pub name: String,
    /// One of `API_VERSIONS`.
    pub api_version: String,
    /// Patterns for repositories. The provider is called for images that match one of them.
    pub match_images: Vec<String>,
    /// How long a response without `cacheDuration` is cached.
    pub default_cache: Duration,
    #[serde(skip)]
    pub args: Vec<String>,
    /// Environment variables in addition to those of the agent.
    #[serde(skip)]
    pub env: Vec<(String, String)>,
}

/// Omits arguments and environment, which may be secret.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.name)
    }
}

/// The images for which a cached response is valid, besides the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CacheKey {
    /// Only this repository.
    Image,
    /// All repositories of the registry.
    Registry,
    /// All images for which the provider is called.
    Global,
}

/// The response of a provider. `Debug` shows no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    pub keyring: Keyring,
    pub key: CacheKey,
    /// How long the response is cached. Zero: it is used only for this request.
    pub cache_for: Duration,
}

impl Provider {
    pub fn is_for(&self, repository: &str) -> bool {
        self.match_images.iter().any(|pattern| matches(pattern, repository))
    }

    /// Returns the CredentialProviderRequest for the provider's standard input.
    pub fn request(&self, repository: &str) -> String {
        let kind = "CredentialProviderRequest";
        json!({"kind": kind, "apiVersion": self.api_version, "image": repository}).to_string()
    }

    /// Reads the CredentialProviderResponse from the provider's standard output.
    ///
    /// # Errors
    /// The field that is invalid, without its value.
    pub fn response(&self, output: &[u8]) -> Result<Provided, String> {
        let mut response = registry_credentials::object(output)?;
        let text = |name: &str| response.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("kind") != "CredentialProviderResponse" {
            return Err("kind: must be CredentialProviderResponse".to_owned());
        }
        if text("apiVersion") != self.api_version {
            return Err(format!("apiVersion: must be {}, as in the request", self.api_version));
        }
        let key = match text("cacheKeyType") {
            "Image" => CacheKey::Image,
            "Registry" => CacheKey::Registry,
            "Global" => CacheKey::Global,
            _ => return Err("cacheKeyType: must be Image, Registry or Global".to_owned()),
        };
        let cache_for = match response.get("cacheDuration") {
            None | Some(Value::Null) => self.default_cache,
            Some(Value::String(text)) => {
                duration::parse(text).map_err(|_| "cacheDuration: must be a duration like \"6h\"".to_owned())?
            }
            Some(_) => return Err("cacheDuration: must be a duration like \"6h\"".to_owned()),
        };
        let keyring = match response.remove("auth") {
            None | Some(Value::Null) => Keyring::default(),
            Some(Value::Object(auth)) => Keyring::from_auths(auth, "auth")?,
            Some(_) => return Err("auth: must be an object".to_owned()),
        };
        Ok(Provided { keyring, key, cache_for })
    }
}

/// Returns the registry of a repository: host and port.
pub fn registry_of(repository: &str) -> &str {
    repository.split('/').next().unwrap_or(repository)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> Provider {
        Provider {
            name: "cloud".into(),
            api_version: API_VERSIONS[0].into(),
            match_images: vec!["*.example.com".into(), "r.io/team".into()],
            default_cache: Duration::from_secs(600),
            args: vec!["--token=hunter2".into()],
            env: vec![("TOKEN".into(), "hunter2".into())],
        }
    }

    fn response(fields: &str) -> Result<Provided, String> {
        let head = r#""kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1""#;
        provider().response(format!("{{{head}, {fields}}}").as_bytes())
    }

    #[test]
    fn a_provider_is_asked_for_its_images_only() {
        let p = provider();
        assert!(p.is_for("eu.example.com/app") && p.is_for("r.io/team/app"));
        assert!(!p.is_for("example.com/app") && !p.is_for("r.io/other"));
        assert_eq!(
            serde_json::from_str::<Value>(&p.request("r.io/team/app")).unwrap(),
            json!({"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                   "image": "r.io/team/app"})
        );
    }

    #[test]
    fn a_response_has_credentials_and_says_how_long_they_count() {
        let all =
            r#""cacheKeyType": "Registry", "cacheDuration": "1h30m", "auth": {"*.example.com": {"username": "u"}}"#;
        let provided = response(all).unwrap();
        assert_eq!((provided.key, provided.cache_for), (CacheKey::Registry, Duration::from_secs(5400)));
        assert_eq!(provided.keyring.lookup("eu.example.com/app")[0].username, "u");
        let least = response(r#""cacheKeyType": "Image""#).unwrap();
        let expected =
            Provided { keyring: Keyring::default(), key: CacheKey::Image, cache_for: Duration::from_secs(600) };
        assert_eq!(least, expected);
        assert_eq!(response(r#""cacheKeyType": "Global", "cacheDuration": "0s""#).unwrap().cache_for, Duration::ZERO);
    }

    #[test]
    fn a_wrong_response_is_an_error_without_its_values() {
        for (fields, expected) in [
            (r#""cacheKeyType": "hunter2""#, "cacheKeyType: must be Image, Registry or Global"),
            (r#""auth": {}"#, "cacheKeyType: must be Image, Registry or Global"),
            (r#""cacheKeyType": "Image", "cacheDuration": "hunter2""#, "cacheDuration: must be a duration like \"6h\""),
            (r#""cacheKeyType": "Image", "cacheDuration": "-1s""#, "cacheDuration: must be a duration like \"6h\""),
            (r#""cacheKeyType": "Image", "auth": "hunter2""#, "auth: must be an object"),
            (r#""cacheKeyType": "Image", "auth": {"r.io": 1}"#, "auth[r.io]: must be an object"),
        ] {
            assert_eq!(response(fields).unwrap_err(), expected);
        }
        let other =
            br#"{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"}"#;
        let expected = "apiVersion: must be credentialprovider.kubelet.k8s.io/v1, as in the request";
        assert_eq!(provider().response(other).unwrap_err(), expected);
        assert_eq!(provider().response(b"{}").unwrap_err(), "kind: must be CredentialProviderResponse");
    }

    #[test]
    fn neither_debug_output_nor_json_shows_arguments_and_environment() {
        let p = provider();
        let text = format!("{p:?} {}", serde_json::to_string(&p).unwrap());
        assert!(!text.contains("hunter2") && text.contains("cloud"), "{text}");
    }
}
