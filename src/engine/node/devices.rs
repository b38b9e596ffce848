//! Connects the device plugins (`engine/devices`) with the pods.

use super::Engine;
use crate::api::reason::Reason;
use crate::engine::effect::{Effect, Severity};
use crate::engine::event::DeviceEvent;

impl Engine {
    pub(super) fn device_event(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Register { id, registration } => {
                let (resource, endpoint) = (registration.resource.clone(), registration.endpoint.clone());
                let result = self.shared.devices.register(registration);
                let accepted = result.is_ok();
                let (severity, message) = match &result {
                    Ok(()) => (Severity::Normal, format!("device plugin {endpoint} provides {resource}")),
                    Err(why) => (Severity::Warning, format!("device plugin {endpoint:?} is refused: {why}")),
                };
                self.outbox.emit_node_event(severity, Reason::DevicePlugin, message);
                self.outbox.push(Effect::AnswerRegistration { id, result });
                if accepted {
                    self.outbox.push(Effect::WatchDevices { resource, endpoint });
                }
            }
            DeviceEvent::Listed { resource, devices } => {
                if self.shared.devices.listed(&resource, devices) {
                    self.devices_changed();
                }
            }
            DeviceEvent::Lost { resource, why } => {
                self.shared.devices.lost(&resource);
                let message =
                    format!("the device plugin of {resource} is gone: {why}; running pods keep their devices");
                self.outbox.emit_node_event(Severity::Warning, Reason::DevicePlugin, message);
                self.devices_changed();
            }
        }
    }

    /// G2: evaluates again the pods that wait for devices, and retries the containers that lack their devices.
    pub(super) fn devices_changed(&mut self) {
        self.admission.room_changed();
        for (uid, worker) in &mut self.workers {
            if worker.devices_changed() {
                self.steps.touch(uid.clone());
            }
        }
    }
}
