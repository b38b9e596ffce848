//! The key that seals Secrets and tokens on the disk (C15). It is a credential of the service.

use crate::adapters::manifests::ServiceCredentials;
use crate::adapters::records::Records;
use crate::adapters::records::seal::SealKey;
use crate::api::cluster::{data_record, token};
use crate::api::finding::Finding;
use crate::api::sealing::{CREDENTIAL, Content, KeyState};
use crate::config::Config;
use crate::engine::cluster::sealing::{Problem, Protection, Sealing};
use crate::engine::cluster::sealing_settings::SealingSettings;
use std::sync::Arc;

/// The credentials of the running service, which root can read.
const OF_UNIT: &str = "/run/credentials/wherry.service";

/// Returns the key, if these credentials contain a usable one, and its state.
pub fn of(credentials: &ServiceCredentials) -> (Option<Arc<SealKey>>, KeyState) {
    let found =
        credentials.find(CREDENTIAL).and_then(|value| value.map(|value| SealKey::of_credential(&value)).transpose());
    match found {
        Ok(Some(key)) => (Some(Arc::new(key)), KeyState::Usable),
        Ok(None) => (None, KeyState::Missing),
        Err(why) => (None, KeyState::Unusable(why)),
    }
}

/// Checks the records of Secrets and tokens and the key of the running service, for `wherry check --system`. Returns
/// None if the node has no cluster.
pub fn check(config: &Config) -> Option<Finding> {
    let own = ServiceCredentials::of_environment();
    let credentials = match of(&own).1 {
        KeyState::Missing => ServiceCredentials::of_directory(OF_UNIT.into()),
        _ => own,
    };
    finding(config, &credentials)
}

fn finding(config: &Config, credentials: &ServiceCredentials) -> Option<Finding> {
    const CHECK: &str = "sealing";
    config.kubeconfig.as_ref()?;
    let (key, state) = of(credentials);
    let records = match Records::look(&config.root_dir, &[data_record::KIND, token::KIND], key.as_deref()) {
        Ok(records) => records,
        Err(why) => return Some(Finding::warning(CHECK, why, "run the command as root")),
    };
    let mut sealing = Sealing::new(SealingSettings { policy: config.seal_secrets, key: state });
    let locked = records.iter().filter(|record| record.content == Content::Locked);
    locked.for_each(|record| sealing.locked(&record.key));
    if let Some(Problem { message, remedy, .. }) = sealing.problem() {
        return Some(Finding::error(CHECK, message, format!("start wherry if it is not running; {remedy}")));
    }
    let sealed = records.iter().filter(|record| matches!(record.content, Content::Sealed(_))).count();
    Some(Finding::ok(
        CHECK,
        match sealing.protection() {
            Protection::Sealed => format!("the service has a key; {sealed} records are sealed"),
            _ => "Secrets and tokens of the cluster are plain text on the disk (sealSecrets)".to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::finding::Level;
    use crate::api::sealing::Policy;

    #[test]
    fn a_key_is_usable_missing_or_unusable() {
        let dir = tempfile::tempdir().unwrap();
        let credentials = ServiceCredentials::of_directory(dir.path().to_owned());
        let state = || of(&credentials).1;
        assert_eq!((of(&ServiceCredentials::default()).1, state()), (KeyState::Missing, KeyState::Missing));
        let path = dir.path().join(CREDENTIAL);
        std::fs::write(&path, [7; 32]).unwrap();
        assert!(of(&credentials).0.is_some() && state() == KeyState::Usable);
        std::fs::write(&path, "hunter2").unwrap();
        let KeyState::Unusable(why) = state() else { panic!("{:?}", state()) };
        assert!(why.starts_with("it has 7 bytes") && !why.contains("hunter2"), "{why}");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/urandom", &path).unwrap();
        assert!(matches!(state(), KeyState::Unusable(_)));
    }

    #[test]
    fn the_check_shows_records_that_cannot_be_opened_and_a_missing_key() {
        use crate::engine::effect::RecordChange;
        let dir = tempfile::tempdir().unwrap();
        let (root, unit) = (dir.path().join("root"), dir.path().join("unit"));
        std::fs::create_dir(&unit).unwrap();
        let config = |policy| Config {
            root_dir: root.clone(),
            kubeconfig: Some("/k".into()),
            seal_secrets: policy,
            ..Config::default()
        };
        let credentials = ServiceCredentials::of_directory(unit.clone());
        let found = |policy| finding(&config(policy), &credentials).unwrap();
        let levels = || [Policy::Auto, Policy::Required, Policy::Never].map(|policy| found(policy).level);
        assert_eq!(levels(), [Level::Ok, Level::Error, Level::Ok]);
        assert!(finding(&Config::default(), &credentials).is_none());
        let key = Arc::new(SealKey::of_credential(&[1; 32]).unwrap());
        let seal = RecordChange::Seal { key: "tokens/a".into(), value: "hunter2".into() };
        assert!(Records::open(&root, Some(key)).unwrap().make(&[seal])[0].is_ok());
        assert_eq!(levels(), [Level::Error; 3]);
        let shown = format!("{:?}", found(Policy::Auto));
        assert!(shown.contains("1 records") && shown.contains("LoadCredentialEncrypted=wherry.key:"), "{shown}");
        std::fs::write(unit.join(CREDENTIAL), [2; 32]).unwrap();
        assert!(found(Policy::Auto).message.contains("a key other than"));
        std::fs::write(unit.join(CREDENTIAL), [1; 32]).unwrap();
        assert_eq!(levels(), [Level::Ok; 3]);
        assert!(found(Policy::Auto).message.contains("1 records are sealed"));
    }
}
