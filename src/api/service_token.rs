//! The tokens of service accounts in the volumes of a pod. Only an API server issues them.

use crate::api::cluster::token::{self, TokenKey};
use crate::api::k8s;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Returns the keys of the tokens in the volumes of a pod.
pub fn of_pod(pod: &Pod) -> impl Iterator<Item = TokenKey> {
    let volumes = pod.spec().volumes.iter().flatten();
    let sources = volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
    sources.filter_map(|source| source.service_account_token.as_ref()).map(|source| TokenKey::of(pod, source))
}

/// Returns the user that owns the file of a token: the user of all containers, if they all run as the same user. None
/// if root owns the file. The rule is the kubelet's.
pub fn owner(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec().security_context.as_ref().and_then(|context| context.run_as_user);
    let user = |c: &k8s::Container| c.security_context.as_ref().and_then(|context| context.run_as_user).or(of_pod);
    let mut users = pod.all_containers().map(user);
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}

/// The tokens in use.
#[derive(Clone, Default)]
pub struct Tokens {
    by_key: BTreeMap<TokenKey, Result<Rc<str>, String>>,
    /// The keys of the records that cannot be opened (C15).
    locked: BTreeSet<String>,
}

impl Tokens {
    /// Returns a token.
    ///
    /// # Errors
    /// The API server has not issued the token. The text is for the pod's events.
    pub fn get(&self, key: &TokenKey) -> Result<&str, String> {
        match self.by_key.get(key) {
            Some(Ok(token)) => Ok(token),
            Some(Err(why)) => Err(why.clone()),
            None if self.locked.contains(&token::key(key)) => {
                Err("its copy on the disk is sealed, and the service has no key for it; waiting for the API server"
                    .to_owned())
            }
            None => Err("the API server has not issued it yet".to_owned()),
        }
    }

    /// Reports whether the API server has neither issued nor refused the token, and there is no copy of it on the
    /// disk.
    pub fn awaits(&self, key: &TokenKey) -> bool {
        !self.by_key.contains_key(key) && !self.locked.contains(&token::key(key))
    }

    pub fn set(&mut self, key: &TokenKey, value: Result<Rc<str>, String>) {
        self.by_key.insert(key.clone(), value);
    }

    pub fn remove(&mut self, key: &TokenKey) {
        self.by_key.remove(key);
    }

    /// Marks the record of a token as locked, because it cannot be opened.
    pub fn lock(&mut self, record: &str) {
        self.locked.insert(record.to_owned());
    }

    /// Removes and returns the records that cannot be opened and belong to none of these tokens.
    pub fn take_unused_locked<'k>(&mut self, used: impl Iterator<Item = &'k TokenKey>) -> BTreeSet<String> {
        if self.locked.is_empty() {
            return BTreeSet::new();
        }
        let used: BTreeSet<String> = used.map(token::key).collect_set();
        let (locked, unused) = std::mem::take(&mut self.locked).into_iter().partition(|record| used.contains(record));
        self.locked = locked;
        unused
    }
}

/// Shows only the number of tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.by_key.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;
    use crate::api::names::Uid;

    fn pod(spec: &str) -> Pod {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{{spec}}}}}");
        let document = document::parse(text.as_bytes(), "/m/a.yaml").unwrap().remove(0);
        document.pod_with_unsupported("/m/a.yaml", Context::new("lab", "")).unwrap()
    }

    #[test]
    fn the_file_belongs_to_the_user_of_all_containers() {
        let user = |n: u32| format!("securityContext: {{runAsUser: {n}}}");
        let container = |name: &str, more: &str| format!("{{name: {name}, image: 'i:1', {more}}}");
        for (of_pod, a, b, expected) in [
            (String::new(), String::new(), String::new(), None),
            (user(7), String::new(), String::new(), Some(7)),
            (user(7), user(8), String::new(), None),
            (String::new(), user(8), user(8), Some(8)),
            (String::new(), user(8), String::new(), None),
        ] {
            let of_pod = if of_pod.is_empty() { of_pod } else { format!("{of_pod}, ") };
            let spec = format!("{of_pod}containers: [{}, {}]", container("a", &a), container("b", &b));
            assert_eq!(owner(&pod(&spec)), expected, "{spec}");
        }
    }

    #[test]
    fn tokens_are_never_shown() {
        let key = TokenKey { uid: Uid::from("u"), audience: None, seconds: 3607 };
        let mut tokens = Tokens::default();
        assert!(tokens.get(&key).is_err());
        tokens.set(&key, Ok("hunter2".into()));
        assert_eq!((tokens.get(&key), format!("{tokens:?}").as_str()), (Ok("hunter2"), "1 tokens"));
    }
}
