//! Communicates with device plugins, over the socket on which they register and over their own sockets. The agent's
//! poll reports the sockets; nothing here blocks.

mod plugin;
mod proto;
mod registrations;

use crate::api::time::Boot;
use crate::engine::effect::DeviceCall;
use crate::engine::event::{Answer, DeviceEvent};
use crate::engine::op::{OpError, OpId};
use mio::{Registry, Token};
use plugin::Plugin;
use registrations::Registrations;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Devices {
    /// The directory of the sockets.
    directory: PathBuf,
    registrations: Registrations,
    /// The plugins by resource.
    plugins: BTreeMap<String, Plugin>,
    events: Vec<DeviceEvent>,
    done: Vec<(OpId, Result<Answer, OpError>)>,
    /// The sockets whose budget for this turn of the loop is used up.
    again: Vec<Token>,
}

impl Devices {
    /// Returns an instance without plugins. They register on `socket`, whose listener has this token.
    pub fn new(socket: &Path, token: Token) -> Devices {
        Devices {
            directory: socket.parent().map(Path::to_path_buf).unwrap_or_default(),
            registrations: Registrations::new(socket, token),
            plugins: BTreeMap::new(),
            events: Vec::new(),
            done: Vec::new(),
            again: Vec::new(),
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        self.registrations.owns(token) || self.plugins.values().any(|plugin| plugin.token == token)
    }

    /// Handles a socket that the poll reported.
    pub fn ready(&mut self, token: Token, registry: &Registry, new_token: &mut dyn FnMut() -> Token, now: Boot) {
        if self.registrations.owns(token) {
            if self.registrations.ready(token, registry, new_token, now, &mut self.events) {
                self.again.push(self.registrations.token());
            }
            return;
        }
        let resource =
            self.plugins.iter().find(|(_, plugin)| plugin.token == token).map(|(resource, _)| resource.clone());
        if let Some(resource) = resource {
            self.drive(&resource, now);
        }
    }

    /// Opens the listener, and ends idle connections and late calls. Call it once at the start, and whenever
    /// `next_deadline` is due.
    pub fn drive_due(&mut self, registry: &Registry, new_token: &mut dyn FnMut() -> Token, now: Boot) {
        if self.registrations.drive_due(registry, new_token, now, &mut self.events) {
            self.again.push(self.registrations.token());
        }
        let due = |plugin: &Plugin| plugin.next_deadline().is_some_and(|at| at <= now);
        let late: Vec<String> = self.plugins.iter().filter(|(_, p)| due(p)).map(|(r, _)| r.clone()).collect();
        for resource in late {
            self.drive(&resource, now);
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        let of_plugins = self.plugins.values().filter_map(Plugin::next_deadline);
        of_plugins.chain(self.registrations.next_deadline()).min()
    }

    /// Responds to a registration.
    pub fn answer(&mut self, id: u64, result: Result<(), String>) {
        self.registrations.answer(id, result, &mut self.events);
    }

    /// Connects to a plugin and watches its devices. An earlier connection for the resource is closed.
    pub fn watch(&mut self, resource: &str, endpoint: &str, registry: &Registry, token: Token, now: Boot) {
        // Closing the connection ends its calls.
        if let Some(old) = self.plugins.remove(resource) {
            self.done.extend(old.abandon());
        }
        match Plugin::connect(&self.directory.join(endpoint), registry, token) {
            Ok(plugin) => {
                self.plugins.insert(resource.to_owned(), plugin);
                self.drive(resource, now);
            }
            Err(e) => self.lost(resource, e.to_string()),
        }
    }

    pub fn call(&mut self, op: OpId, call: DeviceCall, timeout: Duration, now: Boot) {
        let resource = call.resource().to_owned();
        let Some(plugin) = self.plugins.get_mut(&resource) else {
            let why = format!("the device plugin of {resource} is not connected");
            return self.done.push((op, Err(OpError::NotSent(why))));
        };
        if let Err(why) = plugin.call(op, call, now + timeout, now) {
            self.done.push((op, Err(OpError::Refused(why))));
        }
        self.drive(&resource, now);
    }

    /// Ends a call as `Unknown`. Returns true if it was in flight.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let cancelled = self.plugins.values_mut().any(|plugin| plugin.cancel(op));
        if cancelled {
            self.done.push((op, Err(OpError::Unknown("cancelled".to_owned()))));
        }
        cancelled
    }

    fn drive(&mut self, resource: &str, now: Boot) {
        let Some(plugin) = self.plugins.get_mut(resource) else { return };
        let progress = plugin.drive(now, resource, &mut self.events, &mut self.done);
        if progress.again {
            self.again.push(plugin.token);
        }
        if let Some(why) = progress.lost {
            if let Some(plugin) = self.plugins.remove(resource) {
                self.done.extend(plugin.abandon());
            }
            self.lost(resource, why);
        }
    }

    fn lost(&mut self, resource: &str, why: String) {
        self.events.push(DeviceEvent::Lost { resource: resource.to_owned(), why });
    }

    pub fn take_events(&mut self) -> Vec<DeviceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the results of calls since the last time.
    pub fn take_done(&mut self) -> Vec<(OpId, Result<Answer, OpError>)> {
        std::mem::take(&mut self.done)
    }

    /// Returns the sockets to handle in the next turn of the loop, which does not wait.
    pub fn take_again(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.again)
    }

    /// Returns the purpose of the socket with this token.
    pub fn purpose(&self, token: Token) -> Option<String> {
        let of_plugin = self.plugins.iter().find(|(_, plugin)| plugin.token == token);
        let of_plugin = of_plugin.map(|(resource, _)| format!("the device plugin of {resource}"));
        of_plugin.or_else(|| self.registrations.purpose(token).map(str::to_owned))
    }
}
