//! What the pods of the node share: the slots for their calls, the cached answers of credential providers, the
//! devices, the ranges of user IDs, the directories of claims, and the services.

use crate::engine::claims::Claims;
use crate::engine::config::EngineConfig;
use crate::engine::devices::Devices;
use crate::engine::provider_cache::ProviderCache;
use crate::engine::services::Services;
use crate::engine::slots::StartSlots;
use crate::engine::user_namespaces::UserNamespaces;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Shared {
    pub slots: StartSlots,
    pub provider_cache: ProviderCache,
    pub devices: Devices,
    pub user_namespaces: UserNamespaces,
    pub claims: Claims,
    pub services: Services,
}

impl Shared {
    pub fn new(config: &EngineConfig) -> Shared {
        Shared {
            slots: StartSlots::new(config),
            provider_cache: ProviderCache::default(),
            devices: Devices::default(),
            user_namespaces: UserNamespaces::default(),
            claims: Claims::default(),
            services: Services::default(),
        }
    }

    pub fn configure(&mut self, old: &EngineConfig, new: &EngineConfig) {
        self.slots.configure(new);
        self.claims.touch();
        self.services.touch();
        if old.credential_providers != new.credential_providers {
            self.provider_cache.clear();
        }
    }
}
