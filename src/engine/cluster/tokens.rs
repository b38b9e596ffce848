//! The tokens of service accounts for the pods of the API server. Each token is on the disk before a pod uses it, and
//! is replaced before it expires. Without the server, a pod keeps its token even after the token has expired.

use super::backoff::{Backoff, REQUESTS};
use super::reflector::{Step, begin};
use super::warning::warn;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests::Token;
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::cluster::token::{self, Grant, TokenKey, TokenRecord};
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::service_token::Tokens as Values;
use crate::api::time::{Boot, Now};
use crate::engine::effect::{Effect, RecordChange, Severity};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of requests in flight for all pods.
const PARALLEL: usize = 10;
/// A token is replaced before its latest renewal time, by a random part of up to 1/`SPREAD` of the time until then:
/// after 75 to 80 % of its lifetime. Otherwise the tokens of pods and of nodes that started at the same time would be
/// replaced at the same time (C12).
const SPREAD: u32 = 16;
/// The number of refusals after which a token is considered refused. The Node authorizer learns of a pod from its own
/// watch, so it may refuse the first requests.
const REFUSALS: u32 = 3;

#[derive(Debug, Default, Serialize)]
pub struct Tokens {
    slots: BTreeMap<TokenKey, Slot>,
    #[serde(skip)]
    values: Values,
    /// The pods whose tokens have changed since the last call of `take_changed`.
    #[serde(skip)]
    changed: BTreeSet<Uid>,
}

/// The pod and the service account of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted {
    pub pod: FullName,
    pub account: Box<str>,
}

#[derive(Debug, Serialize)]
struct Slot {
    wanted: Wanted,
    held: Held,
    task: Task,
    backoff: Backoff,
}

/// The token in use.
#[derive(Debug, Serialize)]
enum Held {
    /// No token: the server has refused the request this many times.
    Nothing {
        refusals: u32,
    },
    Valid {
        renewal: Boot,
        end: Boot,
    },
    Expired,
}

#[derive(Debug, Serialize)]
enum Task {
    Idle,
    Asking(OpId),
    /// The record is being written.
    Saving {
        op: OpId,
        #[serde(skip)]
        grant: Grant,
    },
}

impl Tokens {
    /// Returns the tokens in use.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns true if each of these tokens exists, or is considered refused by the server.
    pub fn knows(&self, mut keys: impl Iterator<Item = TokenKey>) -> bool {
        keys.all(|key| match self.slots.get(&key).map(|slot| &slot.held) {
            Some(Held::Valid { .. } | Held::Expired) => true,
            Some(Held::Nothing { refusals }) => *refusals >= REFUSALS,
            None => false,
        })
    }

    /// Returns true if each of these tokens is known, or the server has not refused it yet.
    pub fn expects(&self, mut keys: impl Iterator<Item = TokenKey>) -> bool {
        keys.all(|key| {
            let held = self.slots.get(&key).map(|slot| &slot.held);
            held.is_some_and(|held| !matches!(held, Held::Nothing { refusals } if (1..REFUSALS).contains(refusals)))
        })
    }

    pub fn take_changed(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.changed)
    }

    /// Takes a token from its record. Returns false if the record is unusable and is moved aside.
    pub fn record_found(&mut self, record_key: &str, text: &str, now: Now, outbox: &mut Outbox) -> bool {
        match TokenRecord::read(text) {
            Ok(record) => {
                let TokenRecord { key, pod, account, grant } = record;
                let age = now.wall.since(grant.issued);
                // The clock was wrong then or is wrong now, so the age is unknown.
                let renewal =
                    if now.wall < grant.issued { Duration::ZERO } else { grant.renewal().saturating_sub(age) };
                let end = now.boot + grant.valid.saturating_sub(age);
                let held = Held::Valid { renewal: now.boot + renewal, end };
                let wanted = Wanted { pod, account };
                self.values.set(&key, Ok(grant.token));
                self.slots.insert(key, Slot { wanted, held, task: Task::Idle, backoff: Backoff::default() });
                true
            }
            Err(why) => {
                warn(outbox, format!("record {record_key} is unusable: {why}; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: record_key.to_owned() });
                false
            }
        }
    }

    /// Handles a record that cannot be opened. It is kept until the server issues another token.
    pub fn record_locked(&mut self, record: &str) {
        self.values.lock(record);
    }

    /// Follows the tokens of all pods that run here or will run here, and discards all others.
    pub fn follow(&mut self, wanted: BTreeMap<TokenKey, Wanted>, outbox: &mut Outbox) {
        let unused: Vec<TokenKey> = self.slots.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in unused {
            if let Some(Slot { task: Task::Asking(op), .. }) = self.slots.remove(&key) {
                outbox.push(Effect::Cancel { op });
            }
            self.values.remove(&key);
            outbox.record(Owner::Cluster, RecordChange::Delete { key: token::key(&key) });
        }
        for record in self.values.take_unused_locked(wanted.keys()) {
            outbox.record(Owner::Cluster, RecordChange::Delete { key: record });
        }
        for (key, wanted) in wanted {
            self.slots.entry(key).or_insert_with(|| Slot {
                wanted,
                held: Held::Nothing { refusals: 0 },
                task: Task::Idle,
                backoff: Backoff::default(),
            });
        }
    }

    /// Returns when the next request is due.
    pub fn next(&self) -> Option<Boot> {
        let due = self.slots.values().filter_map(Slot::due);
        if self.asking() >= PARALLEL { None } else { due.min() }
    }

    /// Returns when the first of these tokens expires, or `now` if one has expired.
    pub fn end(&self, keys: impl Iterator<Item = TokenKey>, now: Boot) -> Option<Boot> {
        let end = |key| match self.slots.get(&key)?.held {
            Held::Valid { end, .. } => Some(end),
            Held::Expired => Some(now),
            Held::Nothing { .. } => None,
        };
        keys.filter_map(end).min()
    }

    /// Returns when the next token expires.
    pub fn next_end(&self) -> Option<Boot> {
        let ends = self.slots.values().filter_map(|slot| match slot.held {
            Held::Valid { end, .. } => Some(end),
            Held::Nothing { .. } | Held::Expired => None,
        });
        ends.min()
    }

    /// Makes all delayed requests due, because the server is reachable again.
    pub fn hurry(&mut self) {
        self.slots.values_mut().for_each(|slot| slot.backoff.hurry());
    }

    /// Begins the requests that are due.
    pub fn step(&mut self, step: &mut Step<'_>) {
        let mut asking = self.asking();
        for (key, slot) in &mut self.slots {
            if asking >= PARALLEL {
                return;
            }
            if slot.due().is_some_and(|at| at <= step.now) {
                let Wanted { pod, account } = &slot.wanted;
                let lifetime = Duration::from_secs(key.seconds);
                let token = Token { account, pod, uid: &key.uid, audience: key.audience.as_deref(), lifetime };
                slot.task = Task::Asking(begin(token.request(), Some(TIMEOUT), step.outbox));
                asking += 1;
            }
        }
    }

    /// Reports the tokens that have expired. Pods keep them: the files of a running pod do not disappear.
    pub fn expire(&mut self, now: Boot, outbox: &mut Outbox) {
        for slot in self.slots.values_mut() {
            if let Held::Valid { end, .. } = slot.held
                && end <= now
            {
                slot.held = Held::Expired;
                let Wanted { pod, account } = &slot.wanted;
                let message = format!(
                    "a token of the service account {account} for pod {pod} has expired, and the API server has not \
                     issued a new one; the pod keeps the old one"
                );
                outbox.emit_node_event(Severity::Warning, Reason::TokenExpired, message);
            }
        }
    }

    /// Handles the result of a request. Returns false if the request does not belong to the tokens.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let mut all = self.slots.iter_mut();
        let Some((key, slot)) = all.find(|(_, slot)| matches!(slot.task, Task::Asking(of) if of == op)) else {
            return false;
        };
        slot.task = Task::Idle;
        let refusal = match result {
            Ok(response) => match Refusal::of(response) {
                None => match Grant::read(&response.body, Duration::from_secs(key.seconds), step.wall) {
                    Ok(grant) => {
                        let key = key.clone();
                        if let Some(grant) = slot.save(&key, grant, step) {
                            self.use_token(&key, grant, step);
                        }
                        return true;
                    }
                    Err(why) => {
                        warn(step.outbox, format!("the API server's response is unusable: {why}"));
                        None
                    }
                },
                refusal => refusal,
            },
            Err(_) => None,
        };
        slot.backoff.refused(refusal.as_ref(), REQUESTS, step.now, step.rng);
        if let (Held::Nothing { refusals }, Some(refusal)) = (&mut slot.held, refusal) {
            *refusals = match refusal.failure {
                Failure::NotFound | Failure::Invalid => REFUSALS,
                _ => refusals.saturating_add(1),
            };
            self.values.set(key, Err(refusal.to_string()));
            self.changed.insert(key.uid.clone());
        }
        true
    }

    /// Handles the result of writing a record. Returns false if the record is not a token.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, step: &mut Step<'_>) -> bool {
        let mut all = self.slots.iter_mut();
        let Some((key, slot)) = all.find(|(_, slot)| matches!(&slot.task, Task::Saving { op: of, .. } if *of == op))
        else {
            return false;
        };
        let key = key.clone();
        if let Err(e) = result {
            // A full disk must not stop the pods of a node that is connected.
            let pod = &slot.wanted.pod;
            warn(step.outbox, format!("a token of pod {pod} cannot be kept on the disk: {}", e.message()));
        }
        if let Task::Saving { grant, .. } = std::mem::replace(&mut slot.task, Task::Idle) {
            self.use_token(&key, grant, step);
        }
        true
    }

    fn use_token(&mut self, key: &TokenKey, grant: Grant, step: &mut Step<'_>) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let early = step.rng.spread(grant.renewal() / SPREAD);
        let renewal = step.now + grant.renewal().saturating_sub(early);
        slot.held = Held::Valid { renewal, end: step.now + grant.valid };
        self.values.set(key, Ok(grant.token));
        self.changed.insert(key.uid.clone());
    }

    fn asking(&self) -> usize {
        self.slots.values().filter(|slot| matches!(slot.task, Task::Asking(_))).count()
    }
}

impl Slot {
    /// Returns when the next request is due. None if a request is in flight, or a token is being written.
    fn due(&self) -> Option<Boot> {
        match (&self.task, &self.held) {
            (Task::Asking(_) | Task::Saving { .. }, _) => None,
            (Task::Idle, Held::Nothing { .. } | Held::Expired) => Some(self.backoff.at()),
            (Task::Idle, Held::Valid { renewal, .. }) => Some(self.backoff.at().max(*renewal)),
        }
    }

    /// Writes the token to the disk. Returns the token if it is not written (C15).
    fn save(&mut self, key: &TokenKey, grant: Grant, step: &mut Step<'_>) -> Option<Grant> {
        self.backoff.succeeded();
        let Wanted { pod, account } = self.wanted.clone();
        let record = TokenRecord { key: key.clone(), pod, account, grant: grant.clone() };
        let Some(change) = step.protection.put(token::key(key), record.write()) else { return Some(grant) };
        self.task = Task::Saving { op: step.outbox.record(Owner::Cluster, change), grant };
        None
    }
}
