//! The garbage collection of images: the file system, and the images that must stay (I1).

use super::World;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::Event;
use wherry::engine::image_gc_policy::ImageGcPolicy;

impl World {
    /// I1: when the removal is requested, no container uses the image, no desired pod names it, and it is not pinned.
    pub(super) fn check_image(&mut self, call: &RuntimeCall) {
        let RuntimeCall::RemoveImage { id } = call else { return };
        let name = id.strip_prefix("sha256:").unwrap_or(id);
        let used = self.runtime.containers.values().find(|c| c.image == *id).map(|c| format!("container {}", c.id));
        let names = |c: &wherry_engine::api::k8s::Container| c.image.as_deref() == Some(name);
        let named = self.engine.pods().into_iter().find(|view| view.desired && view.pod.all_containers().any(names));
        let named = named.map(|view| format!("pod {}", view.pod.uid));
        let pinned = self.runtime.store.pinned.contains(name).then(|| "the runtime".to_owned());
        if let Some(user) = used.or(named).or(pinned) {
            self.checks.fail("I1: an image in use stays", format!("{id} of {user} is removed"));
        }
    }

    pub fn collects_no_images(&mut self) {
        self.config.image_gc = ImageGcPolicy { high_percent: 100, max_age: None, ..ImageGcPolicy::default() };
        if self.process.alive {
            self.step(Event::Configure(Box::new(self.config.clone())));
        }
    }
}
