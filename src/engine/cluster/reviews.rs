//! Decides who may use the node's server: authentication and authorization by the API server, as in a kubelet (C6).
//!
//! A request (`access`) waits here until the API server has answered. Answers are cached, and identical questions
//! share a review. While the server cannot be reached, its last permission for a user with a client certificate
//! remains valid for a day, because the certificate itself proves the user's identity. A token does not, so its user
//! has to wait for the server.

use super::access::{Access, AccessError, AccessRequest, Authorization, MOST_REVIEWS, Policy};
use super::cache::{Cache, Life};
use super::reflector::{Step, begin};
use crate::api::cluster::request::{ApiError, ApiRequest, ApiResponse};
use crate::api::cluster::reviews::{self, Attributes, BearerToken, Credential, User};
use crate::api::cluster::status::{Failure, Refusal};
use crate::api::time::Boot;
use crate::engine::control::RequestId;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The API server usually answers within milliseconds, and clients rarely wait much longer than this timeout.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A review that fails so soon was probably sent on a connection that was broken already, and is repeated once.
const BROKEN_BEFORE: Duration = Duration::from_secs(1);
const MOST_TOKENS: usize = 256;
const MOST_DECISIONS: usize = 512;
/// *(ours)* How long a permission for a user with a client certificate remains valid while the API server is away,
/// from the server's last answer.
pub const OFFLINE: Duration = Duration::from_secs(24 * 3600);

/// The question of a SubjectAccessReview.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    user: User,
    verb: &'static str,
    subresource: &'static str,
}

/// What a review asks about: the user of a token, or a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// The digest of the token.
    Token(String),
    Access(Box<Question>),
}

#[derive(Clone, Debug)]
struct Review {
    subject: Subject,
    request: ApiRequest,
    since: Boot,
    repeated: bool,
}

/// How the user has proved their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Certificate,
    Other,
}

/// A request of a client that waits for a review.
#[derive(Clone, Debug)]
enum Waiting {
    Token {
        digest: String,
        attributes: Attributes,
    },
    /// `at`: the index of the subresource in question.
    Access {
        subject: Authenticated,
        attributes: Attributes,
        at: usize,
    },
}

/// A user, and how the user has proved their identity.
#[derive(Clone, Debug)]
struct Authenticated {
    user: User,
    proof: Proof,
}

impl Waiting {
    fn waits_for(&self, subject: &Subject) -> bool {
        match (self, subject) {
            (Waiting::Token { digest, .. }, Subject::Token(of)) => digest == of,
            (Waiting::Access { subject: Authenticated { user, .. }, attributes, at }, Subject::Access(of)) => {
                attributes.subresources.get(*at) == Some(&of.subresource)
                    && attributes.verb == of.verb
                    && *user == of.user
            }
            _ => false,
        }
    }
}

/// The result of a review.
#[derive(Clone, Debug)]
enum Outcome {
    User(Option<User>),
    Decision(bool),
    Failed(AccessError),
}

#[derive(Debug, Serialize)]
pub struct Reviews {
    node: String,
    policy: Policy,
    #[serde(serialize_with = "count")]
    tokens: Cache<String, Option<User>>,
    #[serde(serialize_with = "count")]
    decisions: Cache<Question, bool>,
    #[serde(serialize_with = "number")]
    in_flight: BTreeMap<OpId, Review>,
    #[serde(serialize_with = "number")]
    waiting: BTreeMap<RequestId, Waiting>,
    #[serde(skip)]
    answers: Vec<(RequestId, Access)>,
}

// Serializes the number of entries for a dump. The users are omitted, because they are personal data.
fn count<K: Ord + Clone, V, S: serde::Serializer>(cache: &Cache<K, V>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{} cached", cache.len()))
}

fn number<K, V, S: serde::Serializer>(map: &BTreeMap<K, V>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(map.len() as u64)
}

impl Reviews {
    pub fn new(node: &str, policy: Policy) -> Reviews {
        Reviews {
            node: node.to_owned(),
            policy,
            tokens: Cache::new(MOST_TOKENS),
            decisions: Cache::new(MOST_DECISIONS),
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    /// Decides on a client's request. `take_answers` returns the decision, now or later.
    pub fn ask(&mut self, id: RequestId, request: AccessRequest, step: &mut Step<'_>) {
        let AccessRequest { credential, attributes } = request;
        let (user, proof) = match credential {
            Credential::Certificate(user) => (user, Proof::Certificate),
            Credential::Token(token) => return self.authenticate(id, &token, attributes, step),
            Credential::Nothing if self.policy.anonymous => (User::anonymous(), Proof::Other),
            Credential::Nothing => return self.answer(id, Err(AccessError::Unauthorized)),
        };
        self.authorize(id, Authenticated { user, proof }, attributes, 0, step);
    }

    /// Drops the request of a client that has disconnected.
    pub fn gone(&mut self, id: RequestId) {
        self.waiting.remove(&id);
    }

    pub fn take_answers(&mut self) -> Vec<(RequestId, Access)> {
        std::mem::take(&mut self.answers)
    }

    fn answer(&mut self, id: RequestId, access: Access) {
        self.waiting.remove(&id);
        self.answers.push((id, access));
    }

    fn authenticate(&mut self, id: RequestId, token: &BearerToken, attributes: Attributes, step: &mut Step<'_>) {
        if self.policy.tokens.is_none() {
            return self.answer(id, Err(AccessError::Unauthorized));
        }
        let digest = token.digest();
        match self.tokens.fresh(&digest, step.now).cloned() {
            Some(Some(user)) => {
                self.authorize(id, Authenticated { user, proof: Proof::Other }, attributes, 0, step);
            }
            Some(None) => self.answer(id, Err(AccessError::Unauthorized)),
            None => {
                self.waiting.insert(id, Waiting::Token { digest: digest.clone(), attributes });
                self.review(id, Subject::Token(digest), reviews::token_review(token), step);
            }
        }
    }

    /// Authorizes the request. The subresources from `at` on are not decided yet.
    fn authorize(
        &mut self,
        id: RequestId,
        subject: Authenticated,
        attributes: Attributes,
        mut at: usize,
        step: &mut Step<'_>,
    ) {
        if self.policy.authorization == Authorization::AlwaysAllow {
            return self.answer(id, Ok(subject.user.name));
        }
        let Attributes { verb, subresources } = attributes;
        while let Some(subresource) = subresources.get(at) {
            let question = Question { user: subject.user.clone(), verb, subresource };
            match self.decisions.fresh(&question, step.now) {
                Some(true) => return self.answer(id, Ok(subject.user.name)),
                Some(false) => at += 1,
                None => {
                    let request = reviews::access_review(&subject.user, verb, subresource, &self.node);
                    self.waiting.insert(id, Waiting::Access { subject, attributes, at });
                    return self.review(id, Subject::Access(Box::new(question)), request, step);
                }
            }
        }
        self.answer(id, Err(AccessError::Forbidden { user: subject.user.name, attributes }));
    }

    /// Begins a review, unless the same one is in flight.
    fn review(&mut self, id: RequestId, subject: Subject, request: ApiRequest, step: &mut Step<'_>) {
        if self.in_flight.values().any(|review| review.subject == subject) {
            return;
        }
        if self.in_flight.len() >= MOST_REVIEWS {
            return self.answer(id, Err(AccessError::TooManyReviews));
        }
        let op = begin(request.clone(), Some(TIMEOUT), step.outbox);
        self.in_flight.insert(op, Review { subject, request, since: step.now, repeated: false });
    }

    /// Handles the result of a review. Returns false if the operation is not a review.
    pub fn ended(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>, step: &mut Step<'_>) -> bool {
        let Some(review) = self.in_flight.remove(&op) else { return false };
        let was_broken = matches!(result, Err(ApiError::Unknown(_))) && step.now.since(review.since) < BROKEN_BEFORE;
        if was_broken && !review.repeated {
            let op = begin(review.request.clone(), Some(TIMEOUT), step.outbox);
            self.in_flight.insert(op, Review { repeated: true, ..review });
            return true;
        }
        let outcome = outcome(&review.subject, result);
        self.remember(&review.subject, &outcome, step.now);
        let waiting = self.waiting.iter().filter(|(_, waiting)| waiting.waits_for(&review.subject));
        let waiting: Vec<(RequestId, Waiting)> = waiting.map(|(id, waiting)| (*id, waiting.clone())).collect();
        for (id, waiting) in waiting {
            self.go_on(id, waiting, &outcome, step);
        }
        true
    }

    fn remember(&mut self, subject: &Subject, outcome: &Outcome, now: Boot) {
        match (subject, outcome) {
            (Subject::Token(digest), Outcome::User(user)) => {
                let fresh = self.policy.tokens.unwrap_or_default();
                let life = Life { fresh, kept: fresh };
                self.tokens.insert(digest.clone(), user.clone(), user.is_some(), life, now);
            }
            (Subject::Access(question), Outcome::Decision(yes)) => {
                let Authorization::Webhook { yes: of_yes, no: of_no } = self.policy.authorization else { return };
                let fresh = if *yes { of_yes } else { of_no };
                let kept = if *yes { OFFLINE } else { fresh };
                self.decisions.insert((**question).clone(), *yes, *yes, Life { fresh, kept }, now);
            }
            _ => {}
        }
    }

    /// Continues a request whose review has finished.
    fn go_on(&mut self, id: RequestId, waiting: Waiting, outcome: &Outcome, step: &mut Step<'_>) {
        match (waiting, outcome) {
            (Waiting::Token { attributes, .. }, Outcome::User(Some(user))) => {
                let subject = Authenticated { user: user.clone(), proof: Proof::Other };
                self.authorize(id, subject, attributes, 0, step);
            }
            (Waiting::Token { .. }, Outcome::User(None)) => self.answer(id, Err(AccessError::Unauthorized)),
            (Waiting::Access { subject, .. }, Outcome::Decision(true)) => self.answer(id, Ok(subject.user.name)),
            (Waiting::Access { subject, attributes, at }, Outcome::Decision(false)) => {
                self.authorize(id, subject, attributes, at + 1, step);
            }
            (Waiting::Access { subject, attributes, .. }, Outcome::Failed(error)) => {
                let is_away = matches!(error, AccessError::Unavailable { .. });
                let is_proved = subject.proof == Proof::Certificate;
                let permitted = is_away && is_proved && self.was_permitted(&subject.user, attributes, step.now);
                self.answer(id, if permitted { Ok(subject.user.name) } else { Err(error.clone()) });
            }
            (Waiting::Token { .. }, Outcome::Failed(error)) => self.answer(id, Err(error.clone())),
            // Not reached: the kind of an outcome always matches its subject.
            (_, Outcome::User(_) | Outcome::Decision(_)) => {}
        }
    }

    /// Returns true if the API server's last answer is still kept and permitted the request.
    fn was_permitted(&self, user: &User, attributes: Attributes, now: Boot) -> bool {
        attributes.subresources.iter().any(|subresource| {
            let question = Question { user: user.clone(), verb: attributes.verb, subresource };
            self.decisions.kept(&question, now) == Some(&true)
        })
    }
}

fn outcome(subject: &Subject, result: &Result<ApiResponse, ApiError>) -> Outcome {
    let unusable =
        |why: String| Outcome::Failed(AccessError::Refused { why: format!("its response is unusable: {why}") });
    let response = match result {
        Ok(response) => response,
        Err(ApiError::NotSent(why) | ApiError::Unknown(why)) => {
            return Outcome::Failed(AccessError::Unavailable { why: why.clone() });
        }
        Err(ApiError::TooLarge(why)) => return unusable(why.clone()),
    };
    if let Some(refusal) = Refusal::of(response) {
        let why = format!("{} {}", refusal.code, refusal.message);
        return Outcome::Failed(match refusal.failure {
            Failure::TooManyRequests { .. } | Failure::Unavailable { .. } => AccessError::Unavailable { why },
            _ if refusal.code >= 500 => AccessError::Unavailable { why },
            _ => AccessError::Refused { why },
        });
    }
    let read = match subject {
        Subject::Token(_) => reviews::read_token_review(&response.body).map(Outcome::User),
        Subject::Access(_) => reviews::read_access_review(&response.body).map(Outcome::Decision),
    };
    read.unwrap_or_else(unusable)
}
