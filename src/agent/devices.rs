//! Passes the registrations and lists of device plugins to the engine, and the engine's calls to the plugins.

use super::Agent;
use crate::api::time::Now;
use crate::engine::effect::DeviceCall;
use crate::engine::event::Event;
use crate::engine::op::{OpError, OpId};
use mio::Token;
use std::time::Duration;

impl Agent {
    /// The poll reported a socket of the device plugins.
    pub(super) fn device_ready(&mut self, token: Token, now: Now) {
        let Some(devices) = &mut self.devices else { return };
        {
            let (registry, mut new_token) = self.event_loop.accepting();
            devices.ready(token, registry, &mut new_token, now.boot);
        }
        self.take_from_devices();
    }

    /// Opens the listener, and ends what is late.
    pub(super) fn drive_devices(&mut self, now: Now) {
        let Some(devices) = &mut self.devices else { return };
        {
            let (registry, mut new_token) = self.event_loop.accepting();
            devices.drive_due(registry, &mut new_token, now.boot);
        }
        self.take_from_devices();
    }

    pub(super) fn answer_registration(&mut self, id: u64, result: Result<(), String>) {
        if let Some(devices) = &mut self.devices {
            devices.answer(id, result);
        }
        self.take_from_devices();
    }

    pub(super) fn watch_devices(&mut self, resource: &str, endpoint: &str, now: Now) {
        let token = self.event_loop.token();
        if let Some(devices) = &mut self.devices {
            devices.watch(resource, endpoint, self.event_loop.registry(), token, now.boot);
        }
        self.take_from_devices();
    }

    pub(super) fn call_device_plugin(&mut self, op: OpId, call: DeviceCall, timeout: Duration, now: Now) {
        match &mut self.devices {
            Some(devices) => devices.call(op, call, timeout, now.boot),
            None => {
                let result = Err(OpError::Refused("device plugins are turned off".to_owned()));
                self.events.push_back(Event::Done { op, result });
            }
        }
        self.take_from_devices();
    }

    /// True if it is a call to a device plugin.
    pub(super) fn cancel_device_call(&mut self, op: OpId) -> bool {
        let cancelled = self.devices.as_mut().is_some_and(|devices| devices.cancel(op));
        if cancelled {
            self.take_from_devices();
        }
        cancelled
    }

    fn take_from_devices(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        devices.take_again().into_iter().for_each(|token| self.event_loop.again(token));
        self.events.extend(devices.take_events().into_iter().map(Event::Device));
        self.events.extend(devices.take_done().into_iter().map(|(op, result)| Event::Done { op, result }));
    }
}
