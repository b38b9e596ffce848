//! The responses of credential providers that are still valid, so that not every pull has to run a provider.

use crate::api::credential_provider::{CacheKey, Provided, registry_of};
use crate::api::registry_credentials::Keyring;
use crate::api::time::Boot;
use serde::Serialize;

/// The maximum number of responses. The oldest ones are dropped.
const MAX_ENTRIES: usize = 500;

#[derive(Debug, Serialize)]
struct Entry {
    provider: String,
    key: CacheKey,
    /// A repository or a registry; empty for `Global`.
    of: String,
    until: Boot,
    #[serde(skip)]
    keyring: Keyring,
}

#[derive(Debug, Default, Serialize)]
pub struct ProviderCache {
    entries: Vec<Entry>,
}

impl ProviderCache {
    /// Returns the valid response for the repository: its own, that of its registry, or the global one.
    pub fn get(&self, provider: &str, repository: &str, now: Boot) -> Option<&Keyring> {
        let keys = [CacheKey::Image, CacheKey::Registry, CacheKey::Global];
        keys.into_iter().find_map(|key| {
            let of = part(key, repository);
            let is = |e: &&Entry| e.provider == provider && e.key == key && e.of == of && e.until > now;
            self.entries.iter().find(is).map(|e| &e.keyring)
        })
    }

    pub fn put(&mut self, provider: &str, repository: &str, provided: &Provided, now: Boot) {
        let of = part(provided.key, repository);
        self.entries.retain(|e| e.until > now && !(e.provider == provider && e.key == provided.key && e.of == of));
        if provided.cache_for.is_zero() {
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.remove(0);
        }
        self.entries.push(Entry {
            provider: provider.to_owned(),
            key: provided.key,
            of: of.to_owned(),
            until: now + provided.cache_for,
            keyring: provided.keyring.clone(),
        });
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

fn part(key: CacheKey, repository: &str) -> &str {
    match key {
        CacheKey::Image => repository,
        CacheKey::Registry => registry_of(repository),
        CacheKey::Global => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn provided(user: &str, key: CacheKey, seconds: u64) -> Provided {
        let text = format!(r#"{{"auths": {{"r.io": {{"username": "{user}"}}}}}}"#);
        let keyring = Keyring::from_docker_config(text.as_bytes()).unwrap();
        Provided { keyring, key, cache_for: Duration::from_secs(seconds) }
    }

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn user(cache: &ProviderCache, repository: &str, now: u64) -> Option<String> {
        let keyring = cache.get("p", repository, at(now))?;
        Some(keyring.lookup("r.io/a")[0].username.clone())
    }

    #[test]
    fn the_most_specific_response_counts_until_its_end() {
        let mut cache = ProviderCache::default();
        cache.put("p", "r.io/a", &provided("global", CacheKey::Global, 100), at(0));
        cache.put("p", "r.io/a", &provided("registry", CacheKey::Registry, 50), at(0));
        cache.put("p", "r.io/a", &provided("image", CacheKey::Image, 10), at(0));
        let users = |now| ["r.io/a", "r.io/b", "s.io/a"].map(|of| user(&cache, of, now).unwrap_or_default());
        assert_eq!(users(9), ["image", "registry", "global"]);
        assert_eq!(users(10), ["registry", "registry", "global"]);
        assert_eq!((users(50), users(100)), (["global"; 3].map(String::from), [""; 3].map(String::from)));
        assert!(cache.get("q", "r.io/a", at(0)).is_none());
    }

    #[test]
    fn a_new_response_replaces_the_old_one_and_one_that_counts_once_is_not_kept() {
        let mut cache = ProviderCache::default();
        cache.put("p", "r.io/a", &provided("old", CacheKey::Image, 10), at(0));
        cache.put("p", "r.io/a", &provided("new", CacheKey::Image, 10), at(1));
        assert_eq!((user(&cache, "r.io/a", 2), cache.entries.len()), (Some("new".into()), 1));
        cache.put("p", "r.io/a", &provided("once", CacheKey::Image, 0), at(2));
        assert_eq!(user(&cache, "r.io/a", 2), None);
        for n in 0..2 * MAX_ENTRIES {
            cache.put("p", &format!("r.io/{n}"), &provided("x", CacheKey::Image, 10), at(0));
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn the_dump_contains_no_credential() {
        let mut cache = ProviderCache::default();
        cache.put("p", "r.io/a", &provided("hunter2", CacheKey::Image, 10), at(0));
        let text = format!("{} {cache:?}", serde_json::to_string(&cache).unwrap());
        assert!(text.contains("r.io/a") && !text.contains("hunter2"), "{text}");
    }
}
