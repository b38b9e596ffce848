//! Image garbage collection (I1 to I4): once per period, it checks how full the file system of the images is. Above
//! the high threshold it removes unused images, least recently used first, down to the low threshold. With a maximum
//! age it also removes images that have been unused for longer than that.
//!
//! `users` decides which images are in use, and `seen` when each was last used. A run that fails is repeated in the
//! next period.

pub mod seen;
pub mod users;

use crate::api::facts::{FileSystemFact, ImageList, ListedImage};
use crate::api::ordered::OrderSlice;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::{Effect, Measure, RecordChange, RuntimeCall, Severity};
use crate::engine::event::Answer;
use crate::engine::image_gc_policy::ImageGcPolicy;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use seen::{KEY, Seen, Unused};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use users::{Keep, Named};

/// Time limit of statvfs.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time between two writes of the record.
const RECORD_PERIOD: Duration = Duration::from_secs(3600);

impl ImageGcPolicy {
    fn is_on(&self) -> bool {
        self.frees_space() || self.max_age.is_some()
    }

    fn frees_space(&self) -> bool {
        self.high_percent < 100
    }
}

/// The goal of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Goal {
    /// Remove images that have been unused for longer than the maximum age.
    Age,
    /// Free this many bytes.
    Space(u64),
    /// The node is short of disk space (E3): remove all that may be removed for space.
    Pressure,
}

#[derive(Debug, Default, Serialize)]
enum State {
    /// There has been no connection to the runtime yet, or the collection is off.
    #[default]
    Idle,
    /// The next run begins at this time.
    Waiting(Boot),
    /// ListImages is in flight. Removals for this goal follow.
    Listing(Goal),
    /// ImageFsInfo is in flight.
    FindingFileSystem,
    /// A statvfs is in flight.
    Measuring,
    Removing(Removal),
}

#[derive(Debug, Serialize)]
struct Removal {
    goal: Goal,
    list: ImageList,
    /// The image of the call in flight, and its size.
    current: (String, u64),
    tried: BTreeSet<String>,
    freed: u64,
    errors: Vec<String>,
    /// The usage before the removal, in percent.
    used_percent: u8,
}

/// The context of a step.
pub struct Inputs<'a> {
    pub now: Boot,
    pub policy: &'a ImageGcPolicy,
    pub request_timeout: Duration,
    /// The images that pods name.
    pub named: &'a dyn Fn() -> Vec<Named>,
    pub outbox: &'a mut Outbox,
}

#[derive(Debug, Default, Serialize)]
pub struct Images {
    state: State,
    seen: Seen,
    /// What the record contains, and when it was written. None: there is no record.
    recorded: Option<(Unused, Boot)>,
    /// The usage that the last statvfs showed, in percent.
    used_percent: u8,
    /// The last run failed, so another failure emits an event.
    failed: bool,
}

impl Images {
    /// Takes the record of the previous process, which was found at the start.
    pub fn record_found(&mut self, text: &str, outbox: &mut Outbox) {
        let unused = seen::read(text).unwrap_or_else(|why| {
            let message = format!("record {KEY} is unusable: {why}; writing it again");
            outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
            Unused::new()
        });
        self.seen.found(unused.clone());
        self.recorded = Some((unused, Boot::default()));
    }

    /// With a maximum age, writes the record when it is due, so that the times without a use survive a restart. A
    /// write is due when an image was used, and otherwise rarely.
    fn keep_record(&mut self, inputs: &mut Inputs<'_>) {
        let Some(max_age) = inputs.policy.max_age else { return };
        let unused = self.seen.unused(inputs.now);
        let due = self.recorded.as_ref().is_none_or(|(written, at)| {
            let used = |(id, seconds): (&String, &u64)| unused.get(id).is_some_and(|now| now < seconds);
            written.iter().any(used) || inputs.now.since(*at) >= RECORD_PERIOD.min(max_age / 10)
        });
        if due {
            let change = RecordChange::Put { key: KEY.to_owned(), value: seen::write(&unused) };
            inputs.outbox.record(Owner::ImageRecord, change);
            self.recorded = Some((unused, inputs.now));
        }
    }

    /// Plans the next run. `may_run`: there is a connection, and it is known which images are in use.
    pub fn plan(&mut self, may_run: bool, inputs: &mut Inputs<'_>) {
        match self.state {
            State::Idle if may_run && inputs.policy.is_on() => {
                self.seen.began(inputs.now);
                self.state = State::Waiting(inputs.now + inputs.policy.period);
            }
            State::Waiting(_) if !inputs.policy.is_on() => self.state = State::Idle,
            _ => {}
        }
        // Deletes the record without a maximum age, because an old record would be wrong when a maximum age is set
        // later.
        if inputs.policy.max_age.is_none() && self.recorded.take().is_some() {
            self.seen.found(Unused::new());
            inputs.outbox.record(Owner::ImageRecord, RecordChange::Delete { key: KEY.to_owned() });
        }
    }

    /// Returns the time of the next run.
    pub fn next_deadline(&self) -> Option<Boot> {
        match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        }
    }

    /// Begins the run that is due, or skips it if `may_run` is false. `running`: the images of the containers that
    /// Wherry knows.
    pub fn begin_due(&mut self, may_run: bool, running: impl Iterator<Item = String>, inputs: &mut Inputs<'_>) {
        if !matches!(self.state, State::Waiting(_)) {
            return;
        }
        if !may_run {
            self.state = State::Waiting(inputs.now + inputs.policy.period);
            return;
        }
        self.seen.used(running, inputs.now);
        // The first list shows which images are old. With a maximum age, each run needs the list.
        if inputs.policy.max_age.is_some() || !self.seen.was_listed() {
            return self.list(Goal::Age, inputs);
        }
        self.find_file_system(inputs);
    }

    /// E3: begins to remove all unused images, unless a run is in progress.
    pub fn reclaim(&mut self, inputs: &mut Inputs<'_>) {
        if !self.is_busy() {
            self.seen.began(inputs.now);
            self.list(Goal::Pressure, inputs);
        }
    }

    /// Returns true if a run is in progress.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle | State::Waiting(_))
    }

    fn list(&mut self, goal: Goal, inputs: &mut Inputs<'_>) {
        self.state = State::Listing(goal);
        inputs.outbox.call_runtime(Owner::Images, RuntimeCall::ListImages, inputs.request_timeout);
    }

    fn find_file_system(&mut self, inputs: &mut Inputs<'_>) {
        if !inputs.policy.frees_space() {
            return self.succeeded(inputs);
        }
        self.state = State::FindingFileSystem;
        inputs.outbox.call_runtime(Owner::Images, RuntimeCall::ImageFs, inputs.request_timeout);
    }

    /// Handles the result of the operation in flight.
    pub fn answered(&mut self, result: Result<Answer, OpError>, inputs: &mut Inputs<'_>) {
        match (std::mem::take(&mut self.state), result) {
            (State::Removing(removal), result) => self.removed(removal, result, inputs),
            (_, Err(e)) => self.failed(e.to_string(), inputs),
            (State::Listing(goal), Ok(Answer::Images(list))) => self.listed(goal, list, inputs),
            (State::FindingFileSystem, Ok(Answer::ImageFs(all))) => match all.into_iter().next() {
                Some(first) => {
                    self.state = State::Measuring;
                    let path = first.mountpoint;
                    inputs.outbox.begin(Owner::Images, |op| Effect::MeasureFileSystem {
                        op,
                        path,
                        timeout: MEASURE_TIMEOUT,
                    });
                }
                None => self.failed("the runtime reports no image filesystem".to_owned(), inputs),
            },
            (State::Measuring, Ok(Answer::FileSystem(fact))) => self.measured(fact, inputs),
            (_, Ok(_)) => self.failed("the runtime's reply belongs to another call".to_owned(), inputs),
        }
    }

    fn listed(&mut self, goal: Goal, list: ImageList, inputs: &mut Inputs<'_>) {
        self.seen.listed(&list, inputs.now);
        self.keep_record(inputs);
        let removal = Removal {
            goal,
            list,
            current: Default::default(),
            tried: BTreeSet::new(),
            freed: 0,
            errors: Vec::new(),
            used_percent: self.used_percent,
        };
        self.remove_next(removal, inputs);
    }

    fn measured(&mut self, FileSystemFact { capacity, available, .. }: FileSystemFact, inputs: &mut Inputs<'_>) {
        if capacity == 0 {
            let message = "invalid capacity 0 on image filesystem".to_owned();
            inputs.outbox.emit_node_event(Severity::Warning, Reason::InvalidDiskCapacity, message.clone());
            return self.failed(message, inputs);
        }
        let available = available.min(capacity);
        // Rounded up, as a kubelet does. The result is at most 100.
        let free = u128::from(available) * 100 / u128::from(capacity);
        self.used_percent = 100 - free as u8;
        if self.used_percent < inputs.policy.high_percent {
            return self.succeeded(inputs);
        }
        let wanted = u128::from(capacity) * u128::from(100 - inputs.policy.low_percent.min(100)) / 100;
        let bytes = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(available);
        self.list(Goal::Space(bytes), inputs);
    }

    /// Requests the removal of the next image, or ends the removal.
    fn remove_next(&mut self, mut removal: Removal, inputs: &mut Inputs<'_>) {
        let next = match removal.goal {
            Goal::Space(bytes) if removal.freed >= bytes => None,
            _ => self
                .candidates(&removal.list, removal.goal, &(inputs.named)(), inputs.policy, inputs.now)
                .into_iter()
                .find(|image| !removal.tried.contains(&image.id))
                .map(|image| (image.id.clone(), image.size)),
        };
        let Some((id, size)) = next else { return self.removal_ended(removal, inputs) };
        removal.tried.insert(id.clone());
        removal.current = (id.clone(), size);
        self.state = State::Removing(removal);
        inputs.outbox.call_runtime(Owner::Images, RuntimeCall::RemoveImage { id }, inputs.request_timeout);
    }

    /// I2, I3: returns the images that may be removed for this goal, in the order of their removal.
    fn candidates<'l>(
        &self,
        list: &'l ImageList,
        goal: Goal,
        named: &[Named],
        policy: &ImageGcPolicy,
        now: Boot,
    ) -> Vec<&'l ListedImage> {
        let removable = |image: &&ListedImage| match (users::keep(image, list, named), goal) {
            (Some(_), _) => false,
            (None, Goal::Age) => policy.max_age.is_some_and(|age| self.seen.unused_for(&image.id, now) > age),
            (None, Goal::Space(_) | Goal::Pressure) => self.seen.age(&image.id, now) >= policy.min_age,
        };
        let mut images: Vec<&ListedImage> = list.images.iter().filter(removable).collect();
        images.order_by(|a, b| self.seen.order(&a.id).cmp(&self.seen.order(&b.id)).then(a.id.cmp(&b.id)));
        images
    }

    fn removed(&mut self, mut removal: Removal, result: Result<Answer, OpError>, inputs: &mut Inputs<'_>) {
        let (id, size) = std::mem::take(&mut removal.current);
        match result {
            Ok(_) => {
                removal.freed = removal.freed.saturating_add(size);
                let reason = if removal.goal == Goal::Age { "age" } else { "space" };
                inputs.outbox.measure(Measure::ImageCollected { reason });
                self.seen.removed(&id);
            }
            // Somebody else has removed the image in the meantime.
            Err(e) if e.is_not_found() => self.seen.removed(&id),
            // Without a connection, every other call would fail too, so the run ends.
            Err(e @ OpError::NotSent(_)) => return self.failed(e.to_string(), inputs),
            Err(e) => removal.errors.push(e.to_string()),
        }
        self.remove_next(removal, inputs);
    }

    fn removal_ended(&mut self, removal: Removal, inputs: &mut Inputs<'_>) {
        let Removal { goal, freed, errors, used_percent, .. } = removal;
        let wanted = match goal {
            Goal::Age | Goal::Pressure => String::new(),
            Goal::Space(bytes) => format!("wanted to free {bytes} bytes, but "),
        };
        if !errors.is_empty() {
            let errors = errors.join(", ");
            return self
                .failed(format!("{wanted}freed {freed} bytes space with errors in image deletion: {errors}"), inputs);
        }
        match goal {
            Goal::Age => self.find_file_system(inputs),
            Goal::Space(bytes) if freed < bytes => {
                let message = format!(
                    "Insufficient free disk space on the node's image filesystem ({used_percent}% used). Failed to \
                     free sufficient space by deleting unused images: {wanted}freed {freed} bytes. Consider resizing \
                     the disk or deleting unused files."
                );
                inputs.outbox.emit_node_event(Severity::Warning, Reason::FreeDiskSpaceFailed, message.clone());
                self.failed(message, inputs);
            }
            Goal::Space(_) | Goal::Pressure => self.succeeded(inputs),
        }
    }

    fn succeeded(&mut self, inputs: &mut Inputs<'_>) {
        self.failed = false;
        self.state = State::Waiting(inputs.now + inputs.policy.period);
    }

    /// Ends a failed run. As in a kubelet, the first failure in a row emits no event.
    fn failed(&mut self, why: String, inputs: &mut Inputs<'_>) {
        if std::mem::replace(&mut self.failed, true) {
            inputs.outbox.emit_node_event(Severity::Warning, Reason::ImageGCFailed, why);
        }
        self.state = State::Waiting(inputs.now + inputs.policy.period);
    }

    /// Returns for `wherry images` why each image stays, or its place in the order of removal, and the time since its
    /// last use.
    pub fn explain(
        &self,
        list: &ImageList,
        named: &[Named],
        policy: &ImageGcPolicy,
        now: Boot,
    ) -> Vec<(Verdict, Option<Duration>)> {
        let order = self.candidates(list, Goal::Space(u64::MAX), named, policy, now);
        let verdict = |image: &ListedImage| match users::keep(image, list, named) {
            Some(keep) => Verdict::Kept(keep),
            None => match order.iter().position(|other| other.id == image.id) {
                Some(place) => Verdict::Removable(place + 1),
                None => Verdict::TooYoung,
            },
        };
        list.images.iter().map(|image| (verdict(image), self.seen.since_last_use(&image.id, now))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Kept(Keep),
    /// Younger than the minimum age.
    TooYoung,
    /// The place in the order of removal, from 1.
    Removable(usize),
}
