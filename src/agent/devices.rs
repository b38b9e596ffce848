//! Passes the registrations and lists of device plugins to the engine, and the engine's calls to the plugins.

use super::tokens::DEVICES;
use crate::adapters::devices::Devices;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::DeviceCall;
use crate::engine::event::Event;
use crate::engine::op::{OpError, OpId};
use crate::event_loop::EventLoop;
use mio::Token;
use std::time::Duration;

pub(super) struct DevicePlugins {
    /// The connections to device plugins. None if device plugins are turned off.
    devices: Option<Devices>,
}

impl DevicePlugins {
    pub(super) fn new(config: &Config) -> DevicePlugins {
        let devices = config.device_plugin_socket.as_deref().map(|socket| Devices::new(socket, DEVICES));
        DevicePlugins { devices }
    }

    pub(super) fn get(&self) -> Option<&Devices> {
        self.devices.as_ref()
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.owns(token))
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.devices.as_ref().and_then(Devices::next_deadline)
    }

    /// Called when the poll reports a socket of the device plugins.
    pub(super) fn ready(&mut self, token: Token, event_loop: &mut EventLoop, now: Now) -> Vec<Event> {
        if let Some(devices) = &mut self.devices {
            let (registry, mut new_token) = event_loop.accepting();
            devices.ready(token, registry, &mut new_token, now.boot);
        }
        self.take_events(event_loop)
    }

    /// Opens the listener, and ends calls whose deadlines have passed.
    pub(super) fn drive(&mut self, event_loop: &mut EventLoop, now: Now) -> Vec<Event> {
        if let Some(devices) = &mut self.devices {
            let (registry, mut new_token) = event_loop.accepting();
            devices.drive_due(registry, &mut new_token, now.boot);
        }
        self.take_events(event_loop)
    }

    pub(super) fn answer_registration(
        &mut self,
        id: u64,
        result: Result<(), String>,
        event_loop: &mut EventLoop,
    ) -> Vec<Event> {
        if let Some(devices) = &mut self.devices {
            devices.answer(id, result);
        }
        self.take_events(event_loop)
    }

    pub(super) fn watch(&mut self, resource: &str, endpoint: &str, event_loop: &mut EventLoop, now: Now) -> Vec<Event> {
        let token = event_loop.token();
        if let Some(devices) = &mut self.devices {
            devices.watch(resource, endpoint, event_loop.registry(), token, now.boot);
        }
        self.take_events(event_loop)
    }

    pub(super) fn call(
        &mut self,
        op: OpId,
        call: DeviceCall,
        timeout: Duration,
        event_loop: &mut EventLoop,
        now: Now,
    ) -> Vec<Event> {
        let Some(devices) = &mut self.devices else {
            let result = Err(OpError::Refused("device plugins are turned off".to_owned()));
            return vec![Event::Done { op, result }];
        };
        devices.call(op, call, timeout, now.boot);
        self.take_events(event_loop)
    }

    /// Cancels the operation. Returns true if it was a call to a device plugin; `take_events` then returns its
    /// result.
    pub(super) fn cancel(&mut self, op: OpId) -> bool {
        self.devices.as_mut().is_some_and(|devices| devices.cancel(op))
    }

    pub(super) fn take_events(&mut self, event_loop: &mut EventLoop) -> Vec<Event> {
        let Some(devices) = &mut self.devices else { return Vec::new() };
        devices.take_again().into_iter().for_each(|token| event_loop.again(token));
        let mut events: Vec<Event> = devices.take_events().into_iter().map(Event::Device).collect();
        events.extend(devices.take_done().into_iter().map(|(op, result)| Event::Done { op, result }));
        events
    }
}
