//! Connects image garbage collection with the pods, and answers requests for the list of images.

use super::Engine;
use crate::api::cluster::node::largest;
use crate::api::control::{ImageState, ImageView, Images as ImagesReply};
use crate::api::facts::{ImageList, ListedImage};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::engine::control::{Reply, RequestError, RequestId, images};
use crate::engine::effect::{Effect, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::images::users::{self, Keep, Named};
use crate::engine::images::{Images, Inputs, Verdict};
use crate::engine::op::{OpError, OpId};
use crate::engine::owner::Owner;
use std::time::Duration;

impl Engine {
    /// Returns the images that manifests and pods name, and the images of the containers that Wherry knows.
    fn named_images(&self) -> Vec<Named> {
        let of_workers = self.workers.values().flat_map(|w| w.pod.iter().chain(&w.demand.successor));
        let mut named = Vec::new();
        let mut of_pod = |pod: &Pod| {
            let of = |image: &String| Named { image: image.clone(), pod: pod.name.clone() };
            named.extend(pod.images().map(of));
        };
        self.desired.manifests().iter().chain(of_workers).for_each(|pod| of_pod(pod));
        for (uid, worker) in &self.workers {
            named.extend(self.images_of(uid, &worker.name));
        }
        named
    }

    fn images_of(&self, uid: &Uid, name: &FullName) -> Vec<Named> {
        let named = |image: &String| Named { image: image.clone(), pod: name.clone() };
        self.containers(uid).iter().flat_map(|c| [&c.image, &c.image_ref]).map(named).collect()
    }

    fn with_images(&mut self, f: impl FnOnce(&Engine, &mut Images, &mut Inputs<'_>)) {
        let mut images = std::mem::take(&mut self.reclaim.images);
        let mut outbox = std::mem::take(&mut self.outbox);
        let policy = self.config.image_gc.clone();
        let mut inputs = Inputs {
            now: self.now.boot,
            policy: &policy,
            request_timeout: self.config.request_timeout,
            named: &|| self.named_images(),
            outbox: &mut outbox,
        };
        f(self, &mut images, &mut inputs);
        self.reclaim.images = images;
        self.outbox = outbox;
    }

    /// Returns true if images may be removed. Until the manifests and the runtime's pods are known, it is unknown
    /// which images are in use.
    fn may_collect_images(&self) -> bool {
        self.runtime.is_up() && self.knows_its_pods()
    }

    pub(super) fn plan_images(&mut self) {
        let may_run = self.may_collect_images();
        self.with_images(|_, images, inputs| images.plan(may_run, inputs));
    }

    pub(super) fn images_are_due(&mut self) {
        let may_run = self.may_collect_images();
        self.with_images(|engine, images, inputs| {
            let used = engine.workers.iter().flat_map(|(uid, w)| engine.images_of(uid, &w.name));
            images.begin_due(may_run, used.map(|named| named.image), inputs);
        });
    }

    pub(super) fn images_answered(&mut self, result: Result<Answer, OpError>) {
        self.report_images(&result);
        self.with_images(|_, images, inputs| images.answered(result, inputs));
    }

    /// C1: stores the images of this list for the next report about the node.
    fn report_images(&mut self, result: &Result<Answer, OpError>) {
        if let (Some(member), Ok(Answer::Images(list))) = (self.cluster.member_mut(), result) {
            member.status.images = largest(list);
        }
    }

    /// E3: starts to remove unused images. Does nothing without a connection to the runtime, or while the images in
    /// use are unknown.
    pub(super) fn reclaim_images(&mut self) {
        if self.may_collect_images() {
            self.with_images(|_, images, inputs| images.reclaim(inputs));
        }
    }

    pub(super) fn list_images(&mut self, id: RequestId) {
        let op = self.outbox.ops.begin(Owner::ImageList);
        self.requests.images.begun(op, id);
        self.outbox.push(Effect::Runtime { op, call: RuntimeCall::ListImages, timeout: images::TIMEOUT });
    }

    pub(super) fn images_listed(&mut self, op: OpId, result: Result<Answer, OpError>) {
        self.report_images(&result);
        let Some(request) = self.requests.images.ended(op) else { return };
        let answer = match result {
            Ok(Answer::Images(list)) => Ok(Reply::Images(self.images_for_users(&list))),
            Ok(_) => Ok(Reply::Images(ImagesReply::default())),
            Err(e) => Err(RequestError::ImagesFailed(e)),
        };
        self.outbox.push(Effect::Answer { id: request, answer });
    }

    fn images_for_users(&self, list: &ImageList) -> ImagesReply {
        let named = self.named_images();
        let verdicts = self.reclaim.images.explain(list, &named, &self.config.image_gc, self.now.boot);
        let view = |(image, (verdict, last_use)): (&ListedImage, (Verdict, Option<Duration>))| ImageView {
            id: image.id.clone(),
            tags: image.tags.clone(),
            digests: image.digests.clone(),
            size_bytes: image.size,
            pods: users::pods(image, list, &named).iter().map(ToString::to_string).collect(),
            seconds_since_use: last_use.map(|d| d.as_secs()),
            state: match verdict {
                Verdict::Kept(Keep::InUse) => ImageState::InUse,
                Verdict::Kept(Keep::Named) => ImageState::Named,
                Verdict::Kept(Keep::Pinned) => ImageState::Pinned,
                Verdict::Kept(Keep::Sandboxes) => ImageState::Sandboxes,
                Verdict::TooYoung => ImageState::TooYoung,
                Verdict::Removable(_) => ImageState::Removable,
            },
            removal_order: match verdict {
                Verdict::Removable(place) => Some(place as u64),
                _ => None,
            },
        };
        ImagesReply { images: list.images.iter().zip(verdicts).map(view).collect() }
    }
}
